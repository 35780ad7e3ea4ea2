import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type {
  Engine,
  EngineEvent,
  EngineEventSink,
  EngineFailure,
  EngineInfo,
  EngineLoad,
  EngineOptions,
  GenerateRequest,
  SubmitOptions,
} from "@heddle/contracts/engine";

/** Characters that share one entry of the prefix cache, and its entries. */
const blockChars = 64;
const maxBlocks = 4_096;
const charsPerToken = 4;

/** The commands in a prompt: `@tokens=5 @every=10` anywhere in its text. */
interface Script {
  readonly tokens: number;
  readonly everyMs: number;
  /** Fails with this code after `failAfter` tokens. */
  readonly fail: string | undefined;
  readonly failAfter: number;
  readonly crash: boolean;
  readonly hang: boolean;
}

interface Sequence {
  readonly id: number;
  readonly request: GenerateRequest;
  readonly script: Script;
  readonly submittedMs: number;
  readonly deadlineMs: number;
  readonly promptTokens: number;
  cachedTokens: number;
  produced: number;
  nextMs: number;
}

/**
 * A deterministic engine for tests: it batches, queues, caches prefixes, refuses, fails and crashes
 * as a real one does. It answers "t0 t1 t2 ...".
 */
export class ScriptedEngine implements Engine {
  readonly info: EngineInfo = {
    engine: "scripted",
    device: "cpu",
    contextTokens: 8_192,
    vocabularySize: 256,
    parameters: 0,
    fileType: "none",
  };
  readonly #sink: EngineEventSink;
  readonly #onCrash: (error: AppError) => void;
  readonly #maxSequences: number;
  readonly #maxQueued: number;
  readonly #running = new Map<number, Sequence>();
  readonly #waiting: Sequence[] = [];
  readonly #blocks = new Map<string, true>();
  readonly #totals = { promptTokens: 0, cachedTokens: 0, generatedTokens: 0 };
  #events: EngineEvent[] = [];
  #stepQueued = false;
  #closed = false;

  constructor(options: EngineOptions, sink: EngineEventSink, onCrash: (error: AppError) => void) {
    this.#sink = sink;
    this.#onCrash = onCrash;
    this.#maxSequences = options.maxSequences ?? 8;
    this.#maxQueued = options.maxQueued ?? 64;
  }

  submit(id: number, request: GenerateRequest, options: SubmitOptions): void {
    const text = promptText(request);
    const sequence: Sequence = {
      id,
      request,
      script: parseScript(text),
      submittedMs: performance.now(),
      deadlineMs: options.deadlineMs > 0 ? performance.now() + options.deadlineMs : Infinity,
      promptTokens: Math.ceil(text.length / charsPerToken),
      cachedTokens: 0,
      produced: 0,
      nextMs: 0,
    };
    const free = this.#maxSequences - this.#running.size;
    if (this.#waiting.length >= this.#maxQueued + free) {
      this.#fail(sequence, { code: "overloaded", message: `${this.#maxQueued} requests wait` });
    } else this.#waiting.push(sequence);
    this.#queueStep(0);
  }

  cancel(id: number): void {
    const index = this.#waiting.findIndex((sequence) => sequence.id === id);
    const [waiting] = index < 0 ? [] : this.#waiting.splice(index, 1);
    const sequence = waiting ?? this.#running.get(id);
    if (sequence) this.#fail(sequence, { code: "cancelled", message: "the request was cancelled" });
    this.#queueStep(0);
  }

  load(): EngineLoad {
    return {
      running: this.#running.size,
      waiting: this.#waiting.length,
      maxSequences: this.#maxSequences,
      maxQueued: this.#maxQueued,
      kvUsedTokens: this.#blocks.size * (blockChars / charsPerToken),
      kvTokens: maxBlocks * (blockChars / charsPerToken),
      ...this.#totals,
      residentBytes: 0,
      restarts: 0,
    };
  }

  close(): Promise<void> {
    this.#closed = true;
    return Promise.resolve();
  }

  #queueStep(delayMs: number): void {
    if (this.#stepQueued) return;
    this.#stepQueued = true;
    const step = () => {
      this.#stepQueued = false;
      this.#step();
    };
    if (delayMs <= 0) setImmediate(step);
    else setTimeout(step, Math.min(delayMs, 5));
  }

  #step(): void {
    if (this.#closed) return;
    this.#admit();
    const now = performance.now();
    for (const sequence of this.#running.values()) {
      if (now >= sequence.deadlineMs) {
        this.#fail(sequence, { code: "deadline_exceeded", message: "the deadline has passed" });
      } else if (now >= sequence.nextMs) this.#advance(sequence, now);
    }
    const events = this.#events;
    this.#events = [];
    if (events.length > 0) this.#sink(events);
    if (this.#running.size === 0) return;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const sequence of this.#running.values()) nextMs = Math.min(nextMs, sequence.nextMs);
    this.#queueStep(nextMs - now);
  }

  #admit(): void {
    while (this.#running.size < this.#maxSequences) {
      const sequence = this.#waiting.shift();
      if (!sequence) return;
      this.#running.set(sequence.id, sequence);
      const { id, promptTokens } = sequence;
      sequence.cachedTokens = this.#remember(promptText(sequence.request));
      this.#totals.promptTokens += promptTokens;
      this.#totals.cachedTokens += sequence.cachedTokens;
      if (sequence.script.hang) {
        sequence.nextMs = Number.POSITIVE_INFINITY;
        continue;
      }
      const queuedMs = performance.now() - sequence.submittedMs;
      const cachedTokens = sequence.cachedTokens;
      if (sequence.script.fail && sequence.script.failAfter === 0) continue;
      this.#events.push({ type: "started", id, promptTokens, cachedTokens, queuedMs });
    }
  }

  #advance(sequence: Sequence, now: number): void {
    const { id, script, request } = sequence;
    if (script.crash && sequence.produced === script.failAfter) {
      this.#closed = true;
      this.#onCrash(new AppError("engine_failed", "the scripted engine crashed"));
      return;
    }
    if (script.fail && sequence.produced === script.failAfter) {
      this.#fail(sequence, { code: "engine_failed", message: `scripted: ${script.fail}` });
      return;
    }
    const wanted = Math.min(script.tokens, request.maxTokens ?? Number.POSITIVE_INFINITY);
    for (let choice = 0; choice < request.choices && sequence.produced < wanted; choice += 1) {
      this.#events.push({ type: "delta", id, choice, text: `t${sequence.produced} `, tokens: 1 });
    }
    sequence.produced += 1;
    sequence.nextMs = now + script.everyMs;
    if (sequence.produced >= wanted) this.#finish(sequence, wanted);
  }

  #finish(sequence: Sequence, wanted: number): void {
    const { id, request, script, promptTokens, cachedTokens } = sequence;
    this.#running.delete(id);
    const reason = wanted < script.tokens ? "length" : "stop";
    for (let choice = 0; choice < request.choices; choice += 1) {
      this.#events.push({ type: "finish", id, choice, reason });
    }
    const completionTokens = wanted * request.choices;
    this.#totals.generatedTokens += completionTokens;
    const usage = { promptTokens, cachedTokens, completionTokens, reasoningTokens: 0 };
    this.#events.push({ type: "done", id, usage });
  }

  #fail(sequence: Sequence, error: EngineFailure): void {
    this.#running.delete(sequence.id);
    this.#events.push({ type: "failed", id: sequence.id, error });
  }

  /** The number of tokens of the longest known prefix; afterwards the whole text is known. */
  #remember(text: string): number {
    let cachedBlocks = 0;
    const hash = createHash("sha1");
    for (let at = 0; at + blockChars <= text.length; at += blockChars) {
      const key = hash
        .update(text.slice(at, at + blockChars))
        .copy()
        .digest("hex");
      if (this.#blocks.delete(key) && cachedBlocks === at / blockChars) cachedBlocks += 1;
      this.#blocks.set(key, true);
    }
    for (const key of this.#blocks.keys()) {
      if (this.#blocks.size <= maxBlocks) break;
      this.#blocks.delete(key);
    }
    return cachedBlocks * (blockChars / charsPerToken);
  }
}

function promptText(request: GenerateRequest): string {
  const { input } = request;
  if (input.kind === "text") return input.text;
  if (input.kind === "tokens") return input.tokens.join(" ");
  return input.messages.map((message) => message.content ?? "").join("\n");
}

function parseScript(text: string): Script {
  const number = (name: string, fallback: number) =>
    Number(new RegExp(`@${name}=(\\d+)`).exec(text)?.[1] ?? fallback);
  return {
    tokens: number("tokens", 4),
    everyMs: number("every", 0),
    fail: /@fail=(\w+)/.exec(text)?.[1],
    failAfter: number("after", 0),
    crash: text.includes("@crash"),
    hang: text.includes("@hang"),
  };
}
