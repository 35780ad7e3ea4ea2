import type { CallPriority } from "@heddle/contracts/call-priority";
import type { EngineEvent } from "@heddle/contracts/engine";
import type { InferenceCall } from "../../nodes/replicas/ready-replica.ts";

/** What a call waits for. */
export interface WaitView {
  /** `loading`: no replica is ready yet. */
  readonly state: "queued" | "loading";
  /** Its place among the calls of its model, 1 for the next. */
  readonly position: number;
  /** The calls that wait for the model on this master. */
  readonly waiting: number;
  readonly waitedMs: number;
  /** What the model's replicas do, while none is ready. */
  readonly detail?: string | undefined;
  readonly pulledBytes?: number | undefined;
  readonly totalBytes?: number | undefined;
}

/** The wait of a call: the dispatch fills it in, and the answer shows it. */
export class CallWait {
  /** Its place when it began to wait; undefined if it never did. */
  firstPosition: number | undefined;
  /** The longest wait of one of its requests. */
  waitedMs = 0;
  /** The view of each of its requests that wait. */
  readonly #views = new Set<() => WaitView>();
  #onBegin: (() => void) | undefined;

  /** What it waits for now; undefined while it does not. */
  get view(): WaitView | undefined {
    const [read] = this.#views;
    return read?.();
  }

  /** Calls back when the call waits, at once if it does already. */
  watch(onBegin: () => void): void {
    this.#onBegin = onBegin;
    if (this.#views.size > 0) onBegin();
  }

  /** Returns what ends this wait. */
  begin(read: () => WaitView): () => void {
    this.#views.add(read);
    this.firstPosition ??= read().position;
    this.#onBegin?.();
    return () => {
      if (this.#views.delete(read)) this.waitedMs = Math.max(this.waitedMs, read().waitedMs);
    };
  }
}

/** A started call: its present worker and its events. Leaving the iteration cancels the call. */
export interface InferenceAnswer {
  readonly node: string;
  readonly events: AsyncIterable<EngineEvent>;
}

export interface InferenceDispatch {
  /**
   * Chooses a replica, queueing while none has room; resolves at the first event, so that a refusal
   * still has its HTTP status. Until the last event another replica takes over from a lost one,
   * unless the engine sends no ids of tokens. Rejects with an AppError: `overloaded` (with
   * retryAfterMs), `model_loading`, `unavailable`, `deadline_exceeded`, `cancelled`, or the
   * engine's refusal.
   */
  start(call: InferenceCall, signal: AbortSignal, wait?: CallWait): Promise<InferenceAnswer>;
  stats(): DispatchStats;
  /** The queues that are not empty. */
  queues(): QueueStats[];
  loadOf(deployment: string): DispatchLoad;
}

/** Counters since the start and the present queue length. */
export interface DispatchStats {
  readonly queued: number;
  readonly started: number;
  readonly retries: number;
  /** Answers that another replica took over after their first event. */
  readonly continued: number;
  /** Calls refused because of a full queue or a long wait. */
  readonly overloaded: number;
}

/** What the number of a deployment's replicas depends on. */
export interface DispatchLoad {
  /** Calls that wait for a replica. */
  readonly queued: number;
  /** The time to the first token that 9 of 10 of the latest calls had at most. */
  readonly ttftMs: number | undefined;
}

/** The calls that wait for a deployment. */
export interface QueueStats {
  readonly deployment: string;
  readonly waiting: number;
  readonly byPriority: Readonly<Record<CallPriority, number>>;
  readonly longestWaitMs: number;
}

/** The port's injection token, since an interface has no value at run time. */
export const INFERENCE_DISPATCH = Symbol("InferenceDispatch");
