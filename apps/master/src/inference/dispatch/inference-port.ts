import type { EngineEvent } from "@heddle/contracts/engine";
import type { InferenceCall } from "../../nodes/replicas/ready-replica.ts";

/** A started call: its worker and its events. Leaving the iteration cancels the call. */
export interface InferenceAnswer {
  readonly node: string;
  readonly events: AsyncIterable<EngineEvent>;
}

export interface InferenceDispatch {
  /**
   * Chooses a replica, queueing while none has room, and resolves when the first event is there, so
   * that a refusal still has its HTTP status. Retries on another replica only before that. Rejects
   * with an AppError: `overloaded` (with retryAfterMs), `model_loading`, `unavailable`,
   * `deadline_exceeded`, `cancelled`, or the engine's refusal.
   */
  start(call: InferenceCall, signal: AbortSignal): Promise<InferenceAnswer>;
  stats(): DispatchStats;
}

/** Counters since the start and the present queue length. */
export interface DispatchStats {
  readonly queued: number;
  readonly started: number;
  readonly retries: number;
  /** Calls refused because of a full queue or a long wait. */
  readonly overloaded: number;
}

/** The port's injection token, since an interface has no value at run time. */
export const INFERENCE_DISPATCH = Symbol("InferenceDispatch");
