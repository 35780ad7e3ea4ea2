import { type AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import type { EngineEvent, EngineFailure, EngineRequest } from "@heddle/contracts/engine";
import type { ReadyReplica } from "../../nodes/replicas/ready-replica.ts";
import { AnswerRecord } from "./answer-record.ts";
import type { InferenceAnswer } from "./inference-port.ts";

/** Failures of a replica, not of its answer: another replica continues. */
const lostCodes: ReadonlySet<ErrorCode> = new Set(["worker_lost", "engine_failed", "unavailable"]);
/** Failures of the search for another replica that say more than the loss of the first. */
const ownCodes: ReadonlySet<ErrorCode> = new Set(["cancelled", "deadline_exceeded"]);

type EventResult = IteratorResult<EngineEvent, undefined>;

/** A replica that answers, from its first event on. */
export interface Begun {
  readonly replica: ReadyReplica;
  readonly first: EngineEvent;
  readonly rest: AsyncIterator<EngineEvent>;
}

/** What an answer needs of the dispatch. */
export interface AnswerFrame {
  /** A replica's part has ended, with a failure or without. */
  readonly onEnd: (replica: ReadyReplica, code: ErrorCode | undefined) => void;
  /** The first token was received. */
  readonly onToken: () => void;
  /**
   * Finds a replica for the rest after a failure. Undefined where no other try may help; rejects
   * where none takes it.
   */
  readonly proceed: (
    lost: ReadyReplica,
    failure: EngineFailure,
    rest: EngineRequest,
  ) => Promise<Begun | undefined>;
}

/** An answer that another replica continues where its own is lost: its reader sees a pause. */
export class LiveAnswer implements InferenceAnswer, AsyncIterator<EngineEvent> {
  readonly events: AsyncIterable<EngineEvent> = { [Symbol.asyncIterator]: () => this };
  readonly #record: AnswerRecord;
  readonly #frame: AnswerFrame;
  #begun: Begun;
  #pending: EngineEvent | undefined;
  #hasToken = false;
  #isLeft = false;

  constructor(request: EngineRequest, begun: Begun, frame: AnswerFrame) {
    this.#record = new AnswerRecord(request);
    this.#frame = frame;
    this.#begun = begun;
    this.#pending = begun.first;
  }

  get node(): string {
    return this.#begun.replica.node;
  }

  /** Without a function that awaits: each token of each answer comes through here. */
  next(): Promise<EventResult> {
    const value = this.#pending;
    if (value === undefined) return this.#begun.rest.next().then(this.#onRead);
    this.#pending = undefined;
    return Promise.resolve({ value, done: false as const }).then(this.#onRead);
  }

  async return(): Promise<EventResult> {
    this.#isLeft = true;
    await this.#begun.rest.return?.();
    return { value: undefined, done: true };
  }

  /** What the reader gets for what the present replica sent. */
  readonly #onRead = (read: EventResult): EventResult | Promise<EventResult> => {
    const event = read.value;
    if (event === undefined) return { value: undefined, done: true };
    const { replica } = this.#begun;
    if (event.type === "failed") {
      this.#frame.onEnd(replica, event.error.code);
      return this.#onFailed(event);
    }
    if (event.type === "done") this.#frame.onEnd(replica, undefined);
    else if (event.type === "delta" && !this.#hasToken) {
      this.#hasToken = true;
      this.#frame.onToken();
    }
    return this.#record.take(event) ? read : this.next();
  };

  async #onFailed(event: EngineEvent & { readonly type: "failed" }): Promise<EventResult> {
    const failure = await this.#proceed(event.error);
    return failure ? { value: { ...event, error: failure }, done: false } : this.next();
  }

  /** Continues on another replica; else gives the failure that ends the answer. */
  async #proceed(failure: EngineFailure): Promise<EngineFailure | undefined> {
    const rest = lostCodes.has(failure.code) ? this.#record.rest : undefined;
    if (!rest) return failure;
    try {
      const begun = await this.#frame.proceed(this.#begun.replica, failure, rest);
      if (!begun) return failure;
      this.#begun = begun;
      this.#pending = begun.first;
      if (this.#isLeft) await begun.rest.return?.();
      return undefined;
    } catch (thrown) {
      const { code, message }: AppError = toAppError(thrown);
      if (ownCodes.has(code)) return { code, message };
      return {
        ...failure,
        message: `${failure.message}; no other replica continues it: ${message}`,
      };
    }
  }
}
