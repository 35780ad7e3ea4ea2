import { once } from "node:events";
import { Metadata, type ServerDuplexStream } from "@grpc/grpc-js";
import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { AppError, toAppError } from "@heddle/base/errors";
import type { EngineEvent, EngineFailure } from "@heddle/contracts/engine";
import type { InferenceCommand__Output } from "@heddle/contracts/generated/heddle/v1/InferenceCommand";
import type { InferenceEvent } from "@heddle/contracts/generated/heddle/v1/InferenceEvent";
import type { InferenceEvents } from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import type { Start__Output } from "@heddle/contracts/generated/heddle/v1/Start";
import { callerOf } from "@heddle/rpc/credentials";
import { decodeWork, encodeEvent } from "@heddle/rpc/inference-codec";
import { toStatus } from "@heddle/rpc/status";
import { EngineSpan } from "./engine-span.ts";
import { isLast, Outbox } from "./outbox.ts";
import type { ReplicaCall } from "./replica.ts";
import type { ReplicaSet } from "./replica-set.ts";

type SessionStream = ServerDuplexStream<InferenceCommand__Output, InferenceEvents>;

type Delta = EngineEvent & { readonly type: "delta" };

/** The most open requests of one master; its own queue holds the rest. */
const MAX_REQUESTS = 4_096;

interface OpenRequest {
  readonly outbox: Outbox;
  /** How long deltas may be held; 0 for not at all. */
  readonly holdMs: number;
  /** Runs while deltas are held. */
  hold?: NodeJS.Timeout | undefined;
  hasText?: boolean;
  /** Undefined where traces are off. */
  readonly span: EngineSpan | undefined;
  call?: ReplicaCall | undefined;
  /** Its last event awaits its reader, and was not reported to the master. */
  isEndUnreported?: boolean;
}

/**
 * One master's stream of requests. All events of one turn of the event loop (one engine step) leave
 * in one frame. Any end of the stream cancels every open request.
 */
export class InferenceSession {
  readonly #stream: SessionStream;
  readonly #replicas: ReplicaSet;
  /** The master's name. */
  readonly #master: string;
  readonly #open = new Map<number, OpenRequest>();
  readonly #dirty = new Set<number>();
  readonly #nextFlush = new OncePerTurn(() => this.#flush(), queueMicrotask);
  #writable = true;
  #ended = false;

  constructor(stream: SessionStream, replicas: ReplicaSet) {
    this.#stream = stream;
    this.#replicas = replicas;
    this.#master = callerOf(stream).name;
    stream.on("data", (command: InferenceCommand__Output) => this.#receive(command));
    stream.on("drain", () => {
      this.#writable = true;
      this.#flush();
    });
    stream.once("end", () => {
      this.#end();
      stream.end();
    });
    stream.once("cancelled", () => this.#end());
    stream.once("error", () => this.#end());
    // The headers confirm the stream to the master at once.
    stream.sendMetadata(new Metadata());
  }

  /** Requests whose last event has not left yet: readers may be behind their engines. */
  get openRequests(): number {
    return this.#open.size;
  }

  /**
   * Ends the stream after everything that was sent; resolves when the master has read it, or left.
   */
  async finish(): Promise<void> {
    if (this.#stream.closed) return;
    const closed = once(this.#stream, "close");
    this.#stream.end();
    await closed;
  }

  #receive(command: InferenceCommand__Output): void {
    if (this.#ended) return;
    if (command.start) this.#start(command.start);
    else if (command.grant) {
      this.#open.get(command.grant.id)?.outbox.grant(command.grant.events);
      this.#markDirty(command.grant.id);
    } else if (command.cancel) this.#cancel(command.cancel.id);
  }

  #start(start: Start__Output): void {
    const { id } = start;
    if (this.#open.has(id)) {
      const error = new AppError("invalid_value", `request ${id} is already open on this stream`);
      this.#end();
      this.#stream.emit("error", toStatus(error));
      return;
    }
    const opened: OpenRequest = {
      outbox: new Outbox(start.window),
      holdMs: start.holdMs,
      span: EngineSpan.open(start),
    };
    this.#open.set(id, opened);
    const refusal = this.#submit(start, opened);
    if (refusal) this.#push(id, opened, { type: "failed", id, error: refusal });
  }

  #submit(start: Start__Output, opened: OpenRequest): EngineFailure | undefined {
    const { id, deployment, fairKey, cacheSalt, deadlineMs, priority } = start;
    if (this.#open.size > MAX_REQUESTS) {
      return { code: "overloaded", message: `${MAX_REQUESTS} requests are open on this stream` };
    }
    try {
      const call = this.#replicas.submit(
        deployment,
        decodeWork(start),
        { fairKey, cacheSalt, deadlineMs, priority, master: this.#master },
        (event) => this.#push(id, opened, event),
      );
      if ("refused" in call) return call.refused;
      opened.call = call;
      return undefined;
    } catch (error) {
      const { code, message } = toAppError(error);
      return { code, message };
    }
  }

  #cancel(id: number): void {
    const opened = this.#open.get(id);
    if (!opened) return;
    opened.outbox.abandon();
    opened.call?.cancel();
    this.#markDirty(id);
  }

  /** `event.id` is the engine's; on the stream the request has the master's. */
  #push(id: number, opened: OpenRequest, event: EngineEvent): void {
    if (this.#ended) return;
    opened.span?.observe(event);
    opened.outbox.push(event.id === id ? event : { ...event, id });
    if (isLast(event)) opened.isEndUnreported = true;
    if (event.type === "delta" && this.#isHeld(id, opened, event)) return;
    this.#markDirty(id);
  }

  /**
   * Whether a delta waits for those that follow. The first shows that the answer has begun, and tokens
   * with scores are sent one by one.
   */
  #isHeld(id: number, opened: OpenRequest, { logprobs }: Delta): boolean {
    const { hasText, holdMs } = opened;
    opened.hasText = true;
    if (!hasText || holdMs === 0 || logprobs) return false;
    opened.hold ??= setTimeout(() => {
      opened.hold = undefined;
      this.#markDirty(id);
    }, holdMs);
    return true;
  }

  #markDirty(id: number): void {
    this.#dirty.add(id);
    this.#nextFlush.request();
  }

  #flush(): void {
    if (!this.#writable || this.#ended) return;
    const events: InferenceEvent[] = [];
    const computed: number[] = [];
    for (const id of this.#dirty) {
      const opened = this.#open.get(id);
      for (const event of opened?.outbox.take() ?? []) {
        events.push(encodeEvent(event));
        if (isLast(event)) this.#forget(id);
      }
      if (!opened?.isEndUnreported) continue;
      opened.isEndUnreported = false;
      if (this.#open.has(id)) computed.push(id);
    }
    this.#dirty.clear();
    if (events.length > 0 || computed.length > 0) {
      this.#writable = this.#stream.write({ events, computed });
    }
  }

  #forget(id: number): void {
    clearTimeout(this.#open.get(id)?.hold);
    this.#open.delete(id);
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const { call, span, hold } of this.#open.values()) {
      clearTimeout(hold);
      call?.cancel();
      span?.abandon();
    }
    this.#open.clear();
  }
}
