import type {
  Engine,
  EngineEvent,
  EngineEventSink,
  EngineInfo,
  EngineLoad,
} from "@heddle/contracts/engine";
import { mockDeltas, mockUsage } from "./mock-answer.ts";

const done = { ...mockUsage, cachedTokens: 0, reasoningTokens: 0 };
const maxSequences = 1_024;
/** As large as most ids of a real vocabulary. */
const FIRST_TOKEN_ID = 30_000;

/**
 * An engine that answers as fast as the event loop turns, with one token a step, as real ones do. All
 * events of a step leave together.
 */
export class MockEngine implements Engine {
  readonly info: EngineInfo = {
    engine: "mock",
    device: "cpu",
    contextTokens: 8_192,
    vocabularySize: 256,
    parameters: 0,
    fileType: "none",
  };
  readonly #sink: EngineEventSink;
  /** Live requests with the next delta of each. */
  readonly #live = new Map<number, number>();
  #generatedTokens = 0;

  constructor(sink: EngineEventSink) {
    this.#sink = sink;
  }

  submit(id: number): void {
    if (this.#live.size === 0) setImmediate(() => this.#step());
    this.#live.set(id, 0);
  }

  cancel(id: number): void {
    if (!this.#live.delete(id)) return;
    const error = { code: "cancelled", message: "the request was cancelled" } as const;
    this.#sink([{ type: "failed", id, error }]);
  }

  load(): EngineLoad {
    return {
      running: this.#live.size,
      waiting: 0,
      maxSequences,
      maxQueued: maxSequences,
      kvUsedTokens: 0,
      kvTokens: 1_000_000,
      promptTokens: 0,
      cachedTokens: 0,
      generatedTokens: this.#generatedTokens,
      residentBytes: 0,
      restarts: 0,
    };
  }

  close(): Promise<void> {
    this.#live.clear();
    return Promise.resolve();
  }

  #step(): void {
    const events: EngineEvent[] = [];
    for (const [id, next] of this.#live) {
      if (next === 0) events.push(started(id));
      events.push(delta(id, next));
      this.#live.set(id, next + 1);
      if (next + 1 < mockDeltas.length) continue;
      this.#live.delete(id);
      this.#generatedTokens += mockDeltas.length;
      events.push({ type: "finish", id, choice: 0, reason: "stop" });
      events.push({ type: "done", id, usage: done });
    }
    this.#sink(events);
    if (this.#live.size > 0) setImmediate(() => this.#step());
  }
}

function started(id: number): EngineEvent {
  return {
    type: "started",
    id,
    promptTokens: mockUsage.promptTokens,
    cachedTokens: 0,
    queuedMs: 0,
  };
}

function delta(id: number, at: number): EngineEvent {
  const [text, tokenIds] = [mockDeltas[at]!, [FIRST_TOKEN_ID + at]];
  return { type: "delta", id, choice: 0, text, tokens: 1, tokenIds };
}
