import { AppError, toAppError } from "@heddle/base/errors";
import type { EngineEvent, GenerateRequest, SubmitOptions } from "@heddle/contracts/engine";
import {
  ENDED_BROKEN,
  ENDED_STUCK,
  NO_GRAMMAR,
  type ThreadCommand,
  type ThreadStep,
  type ThreadSubmit,
  type VocabularyTable,
} from "../protocol/thread-messages.ts";
import type { PromptReader } from "../tokenizing/prompt-reader.ts";
import { TokenPieces } from "../tokenizing/token-pieces.ts";
import type { GrammarBook } from "./grammar-book.ts";
import type { GrammarSource } from "./grammar-thread.ts";
import { LiveRequest } from "./live-request.ts";
import { LongPrompts } from "./long-prompts.ts";

/** What the book needs to know of the loaded model and its process. */
interface BookOptions {
  readonly table: VocabularyTable;
  readonly reader: PromptReader;
  readonly longPrompts: LongPrompts;
  readonly grammars: GrammarBook;
  readonly contextTokens: number;
  readonly maxQueued: number;
  /** Sends a command to the engine thread. */
  readonly command: (command: ThreadCommand) => void;
  /** Takes events that come outside of a step. */
  readonly emit: (events: readonly EngineEvent[]) => void;
}

const BROKEN =
  "the model's scores for the next token are no numbers: its weights are damaged, or its arithmetic overflows; pull it again, or give another file";

const STUCK =
  "the constraint on the text wants characters that no token of this model's vocabulary spells";

const MAX_CHOICES = 128;
/** Handles stay in int32; far more than can live at once. */
const HANDLE_LIMIT = 2 ** 30;

/**
 * The live requests of an engine process. It decides each request's fate (refusal, cancel,
 * deadline, stop strings) and keeps its usage; the engine thread only turns tokens into tokens.
 */
export class RequestBook {
  readonly #options: BookOptions;
  readonly #pieces: TokenPieces;
  readonly #live = new Map<number, LiveRequest>();
  readonly #byHandle = new Map<number, LiveRequest>();
  #nextHandle = 0;
  #waiting = 0;

  constructor(options: BookOptions) {
    this.#options = options;
    this.#pieces = new TokenPieces(options.table);
  }

  /** Requests that have no slot yet. */
  get waiting(): number {
    return this.#waiting;
  }

  submit(id: number, request: GenerateRequest, options: SubmitOptions): void {
    const { maxQueued } = this.#options;
    if (this.#waiting >= maxQueued) {
      const message = `${this.#waiting} requests wait for this model and at most ${maxQueued} may; try again later`;
      this.#options.emit([failedEvent(id, new AppError("overloaded", message))]);
      return;
    }
    const live = new LiveRequest(id, request, options, this.#pieces);
    this.#live.set(id, live);
    this.#waiting++;
    if (options.deadlineMs > 0) {
      live.deadline = setTimeout(
        () => this.#expire(live),
        Math.min(options.deadlineMs, 2 ** 31 - 1),
      );
    }
    this.#prepare(live);
  }

  cancel(id: number): void {
    const live = this.#live.get(id);
    if (live !== undefined)
      this.#fail(live, new AppError("cancelled", "the request was cancelled"));
  }

  /** The events of one step of the engine thread. */
  step(step: ThreadStep): EngineEvent[] {
    const events: EngineEvent[] = [];
    for (const { firstHandle, cachedTokens, queuedMs } of step.started) {
      const live = this.#byHandle.get(firstHandle);
      if (live === undefined) continue;
      this.#waiting--;
      events.push(live.start(cachedTokens, queuedMs));
    }
    const unwanted: number[] = [];
    for (let i = 0; i < step.handles.length; i++) {
      const handle = step.handles[i] as number;
      const live = this.#byHandle.get(handle);
      if (live === undefined) continue;
      const end = step.ends[i] as number;
      if (end === ENDED_BROKEN || end === ENDED_STUCK) {
        const reason = end === ENDED_BROKEN ? BROKEN : STUCK;
        events.push(this.#failure(live, new AppError("engine_failed", reason)));
        continue;
      }
      const choice = handle - live.firstHandle;
      const token = step.tokens[i] as number;
      if (live.token(choice, token, end, step.logprobs?.[i], events)) {
        unwanted.push(handle);
      }
      if (live.isDone) {
        events.push({ type: "done", id: live.id, usage: live.usage });
        this.#forget(live);
      }
    }
    if (unwanted.length > 0) this.#options.command({ kind: "end", handles: unwanted });
    return events;
  }

  /** Reads the prompt and passes it on; a long one comes back later, and the streams go on. */
  #prepare(live: LiveRequest): void {
    const { table, reader, longPrompts } = this.#options;
    const { input } = live.request;
    try {
      validate(live.request, table.flags.length);
      if (!LongPrompts.isLong(input)) {
        this.#constrain(live, reader.read(input));
        return;
      }
      const { tokens, cancel } = longPrompts.read(input, live.options);
      live.stopReading = cancel;
      tokens.then(
        (prompt) => this.#constrain(live, prompt),
        (error) => this.#fail(live, toAppError(error)),
      );
    } catch (error) {
      this.#fail(live, toAppError(error));
    }
  }

  /** Has the grammar compiled; the request follows at once, before the grammar may be forgotten. */
  #constrain(live: LiveRequest, prompt: Int32Array): void {
    const source = grammarOf(live.request);
    if (source === undefined) {
      this.#admitSafely(live, prompt, NO_GRAMMAR);
      return;
    }
    this.#options.grammars.idOf(source, live.options).then(
      (grammar) => this.#admitSafely(live, prompt, grammar),
      (error) => this.#fail(live, toAppError(error)),
    );
  }

  #admitSafely(live: LiveRequest, prompt: Int32Array, grammar: number): void {
    // It may have been cancelled while its prompt was tokenized.
    if (!this.#live.has(live.id)) return;
    try {
      this.#admit(live, prompt, grammar);
    } catch (error) {
      this.#fail(live, toAppError(error));
    }
  }

  #admit(live: LiveRequest, prompt: Int32Array, grammar: number): void {
    const { contextTokens } = this.#options;
    live.promptTokens = prompt.length;
    live.firstHandle = this.#nextHandle;
    this.#nextHandle = (this.#nextHandle + live.request.choices) % HANDLE_LIMIT;
    for (const handle of live.openHandles) this.#byHandle.set(handle, live);
    this.#options.command(toThreadSubmit(live, prompt, contextTokens - prompt.length, grammar));
  }

  #expire(live: LiveRequest): void {
    const message = `the request did not end within its ${live.options.deadlineMs} ms`;
    this.#fail(live, new AppError("deadline_exceeded", message));
  }

  #fail(live: LiveRequest, error: AppError): void {
    if (!this.#live.has(live.id)) return;
    this.#options.emit([this.#failure(live, error)]);
  }

  /** Ends the request; returns its last event, with the reason, which the caller sends. */
  #failure(live: LiveRequest, error: AppError): EngineEvent {
    const handles = live.openHandles;
    if (handles.length > 0) this.#options.command({ kind: "end", handles });
    this.#forget(live);
    return failedEvent(live.id, error, live);
  }

  #forget(live: LiveRequest): void {
    clearTimeout(live.deadline);
    live.stopReading?.();
    if (!live.started) this.#waiting--;
    this.#live.delete(live.id);
    if (live.firstHandle < 0) return;
    for (let choice = 0; choice < live.request.choices; choice++) {
      this.#byHandle.delete(live.firstHandle + choice);
    }
  }
}

function failedEvent(
  id: number,
  { code, message, param }: AppError,
  live?: LiveRequest,
): EngineEvent {
  const usage = live?.started ? { usage: live.usage } : {};
  const error = { code, message, ...(param === undefined ? {} : { param }), ...usage };
  return { type: "failed", id, error };
}

function validate(request: GenerateRequest, vocabularySize: number): void {
  const inVocabulary = (token: number): boolean =>
    Number.isInteger(token) && token >= 0 && token < vocabularySize;
  const { input, sampling, choices, maxTokens } = request;
  const refuse = (param: string, message: string): never => {
    throw new AppError("invalid_value", `Invalid value for '${param}': ${message}.`, { param });
  };
  if (input.kind === "tokens" && !input.tokens.every(inVocabulary)) {
    refuse("prompt", `a token id is not in 0..${vocabularySize - 1}, this model's vocabulary`);
  }
  if (!sampling.logitBias.every(({ token }) => inVocabulary(token))) {
    refuse("logit_bias", `a token id is not in 0..${vocabularySize - 1}, this model's vocabulary`);
  }
  if (!(choices >= 1 && choices <= MAX_CHOICES)) {
    refuse("n", `${choices} choices were asked for; 1 to ${MAX_CHOICES} are possible`);
  }
  if (maxTokens !== undefined && !(maxTokens >= 1)) {
    refuse("max_tokens", `at least one output token must be allowed, not ${maxTokens}`);
  }
}

/** What the text must be; undefined for free text. */
function grammarOf({ format }: GenerateRequest): GrammarSource | undefined {
  if (format === "text") return undefined;
  if (format === "json_object") return { schema: '{"type":"object"}', param: "response_format" };
  return { schema: format.schema, param: "response_format.json_schema.schema" };
}

function toThreadSubmit(
  live: LiveRequest,
  prompt: Int32Array,
  room: number,
  grammar: number,
): ThreadSubmit {
  const { request, options } = live;
  const { sampling } = request;
  return {
    kind: "submit",
    firstHandle: live.firstHandle,
    choices: request.choices,
    prompt,
    maxTokens: Math.min(request.maxTokens ?? room, room),
    sampling: {
      temperature: sampling.temperature,
      topP: sampling.topP,
      topK: sampling.topK ?? 0,
      minP: sampling.minP ?? 0,
      repetitionPenalty: sampling.repetitionPenalty ?? 1,
      presencePenalty: sampling.presencePenalty,
      frequencyPenalty: sampling.frequencyPenalty,
      seed: sampling.seed ?? Math.floor(Math.random() * 2 ** 32),
      biasTokens: Int32Array.from(sampling.logitBias, ({ token }) => token),
      biasValues: Float32Array.from(sampling.logitBias, ({ bias }) => bias),
    },
    minTokens: request.ignoreEnd ? Number.POSITIVE_INFINITY : (request.minTokens ?? 0),
    topLogprobs: request.topLogprobs ?? -1,
    grammar,
    fairKey: options.fairKey,
    priority: options.priority,
  };
}
