import type {
  Engine,
  EngineEvent,
  EngineEventSink,
  EngineInfo,
  EngineLoad,
  GenerateRequest,
} from "@heddle/contracts/engine";
import { mockDeltas, mockText, mockUsage, stepwise } from "./mock-answer.ts";

const done = { ...mockUsage, cachedTokens: 0, reasoningTokens: 0 };
const maxSequences = 1_024;

/**
 * An engine that answers at once: in one step, or, if the question begins with `stepwise`, with one
 * delta per step, as fast as the event loop turns. All events of a step leave together.
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
  /** Live requests with the next delta of each; `whole` ones take all in one step. */
  readonly #live = new Map<number, { next: number; readonly whole: boolean }>();
  #generatedTokens = 0;

  constructor(sink: EngineEventSink) {
    this.#sink = sink;
  }

  submit(id: number, request: GenerateRequest): void {
    if (this.#live.size === 0) setImmediate(() => this.#step());
    this.#live.set(id, { next: 0, whole: !lastMessage(request).startsWith(stepwise) });
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
    for (const [id, state] of this.#live) {
      if (state.next === 0) events.push(started(id));
      if (state.whole) events.push(delta(id, mockText, mockDeltas.length));
      else events.push(delta(id, mockDeltas[state.next]!, 1));
      state.next = state.whole ? mockDeltas.length : state.next + 1;
      if (state.next < mockDeltas.length) continue;
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

function delta(id: number, text: string, tokens: number): EngineEvent {
  return { type: "delta", id, choice: 0, text, tokens };
}

function lastMessage({ input }: GenerateRequest): string {
  return input.kind === "chat" ? (input.messages.at(-1)?.content ?? "") : "";
}
