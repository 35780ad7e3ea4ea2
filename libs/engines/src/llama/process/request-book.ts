import { AppError, toAppError } from "@heddle/base/errors";
import type {
  DeterministicMode,
  EngineEvent,
  EngineInput,
  EngineRequest,
  GenerateRequest,
  InputReading,
  PairInput,
  SubmitOptions,
} from "@heddle/contracts/engine";
import { reasoningBudget } from "../../text/reasoning-effort.ts";
import { REASONING_TAGS } from "../../text/reasoning-style.ts";
import {
  ENDED_BROKEN,
  ENDED_CROWDED,
  ENDED_STUCK,
  ENDED_UNFIT,
  type ModelAbilities,
  NO_GRAMMAR,
  type ReasoningLimit,
  type ThreadCommand,
  type ThreadStep,
  type VocabularyTable,
} from "../protocol/thread-messages.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { PromptReader } from "../tokenizing/prompt-reader.ts";
import { TokenPieces } from "../tokenizing/token-pieces.ts";
import type { GrammarBook } from "./grammar-book.ts";
import type { GrammarSource } from "./grammar-thread.ts";
import { LiveEmbedding } from "./live-embedding.ts";
import { LiveReading } from "./live-reading.ts";
import { callableTools, LiveRequest, type RequestTexts } from "./live-request.ts";
import { LongPrompts } from "./long-prompts.ts";
import { checkEffort, checkRequest, checkTokens } from "./request-checks.ts";
import { type AnswerLimits, outputLimit, toThreadSubmit } from "./thread-submit.ts";

interface BookLimits extends AnswerLimits {
  /** Requests that may wait. */
  readonly maxQueued: number;
}

/** What a step of the engine thread comes to. */
interface StepOutcome {
  readonly events: EngineEvent[];
  /** Handles of sequences that need not continue. */
  readonly unwanted: number[];
}

/** What the book needs to know of the loaded model and its process. */
interface BookOptions {
  readonly table: VocabularyTable;
  readonly abilities: ModelAbilities;
  readonly reader: PromptReader;
  readonly longPrompts: LongPrompts;
  readonly grammars: GrammarBook;
  readonly limits: BookLimits;
  readonly deterministic: DeterministicMode;
  /** Sends a command to the engine thread. */
  readonly command: (command: ThreadCommand) => void;
  /** Takes events that come outside of a step. */
  readonly emit: (events: readonly EngineEvent[]) => void;
}

const BROKEN =
  "the model's scores for the next token are not numbers: its weights are damaged, or its arithmetic overflows; pull it again, or give another file";

const STUCK =
  "the constraint on the text wants characters that no token of this model's vocabulary spells";

const UNFIT =
  "the adapter cannot be used with this model: it is of another shape, or its file is larger than 2 GiB (512 MiB where workers divide the model); convert the adapter of this very model, of a lower rank";

const CROWDED =
  "this replica runs calls of as many adapters as it has room for (128, and 2 GiB of files); try again when some have ended";

/** Why the engine thread ended a request. */
const REASONS: ReadonlyMap<
  number,
  readonly ["engine_failed" | "answer_failed" | "overloaded", string]
> = new Map([
  [ENDED_BROKEN, ["engine_failed", BROKEN]],
  [ENDED_STUCK, ["answer_failed", STUCK]],
  [ENDED_UNFIT, ["answer_failed", UNFIT]],
  [ENDED_CROWDED, ["overloaded", CROWDED]],
]);

/** What is to be computed. */
type LiveComputation = LiveRequest | LiveEmbedding;
type Live = LiveComputation | LiveReading;

/** An opening tag and the white space behind it are within this many tokens. */
const OPENING_TOKENS = 12;
/** Handles stay in int32; far more than can live at once. */
const HANDLE_LIMIT = 2 ** 30;

/**
 * The live requests of an engine process. It decides each request's fate (refusal, cancel,
 * deadline, stop strings) and keeps its usage; the engine thread only turns tokens into tokens.
 */
export class RequestBook {
  readonly #options: BookOptions;
  readonly #texts: RequestTexts;
  readonly #live = new Map<number, Live>();
  readonly #byHandle = new Map<number, Live>();
  /** The tokens that end reasoning, once they were wanted. */
  #closing: Int32Array | undefined;
  #nextHandle = 0;
  #waiting = 0;

  constructor(options: BookOptions) {
    this.#options = options;
    const { table, grammars } = options;
    const isSpaceAdded = table.cuts.spaceTokens > 0;
    this.#texts = { pieces: new TokenPieces(table), style: grammars.style, isSpaceAdded };
  }

  /** Requests that have no slot yet. */
  get waiting(): number {
    return this.#waiting;
  }

  submit(id: number, request: EngineRequest, options: SubmitOptions): void {
    const { maxQueued } = this.#options.limits;
    if (this.#waiting >= maxQueued) {
      const message = `${this.#waiting} requests wait for this model and at most ${maxQueued} may; try again later`;
      this.#options.emit([failedEvent(id, new AppError("overloaded", message))]);
      return;
    }
    const live = this.#begin(id, request, options);
    this.#live.set(id, live);
    this.#waiting++;
    if (options.deadlineMs > 0) {
      live.deadline = setTimeout(
        () => this.#expire(live),
        Math.min(options.deadlineMs, 2 ** 31 - 1),
      );
    }
    if (live instanceof LiveReading) this.#tell(live);
    else this.#prepare(live);
  }

  #begin(id: number, request: EngineRequest, options: SubmitOptions): Live {
    if (request.kind === "read") return new LiveReading(id, request, options);
    if (request.kind === "embed") return new LiveEmbedding(id, request, options);
    return new LiveRequest(id, request, options, this.#texts);
  }

  /** In the thread of long prompts whatever its length: no stream waits for it. */
  #tell(live: LiveReading): void {
    try {
      checkTokens([live.request.input], this.#options.table.flags.length, () => "tokens");
    } catch (error) {
      this.#fail(live, toAppError(error));
      return;
    }
    const { reading, cancel } = this.#options.longPrompts.tell(live.request, live.options);
    live.stopReading = cancel;
    reading.then(
      (reported) => this.#reported(live, reported),
      (error) => this.#fail(live, toAppError(error)),
    );
  }

  #reported(live: LiveReading, reading: InputReading): void {
    if (!this.#live.has(live.id)) return;
    this.#waiting--;
    this.#options.emit(live.reported(reading));
    this.#forget(live);
  }

  cancel(id: number): void {
    const live = this.#live.get(id);
    if (live !== undefined)
      this.#fail(live, new AppError("cancelled", "the request was cancelled"));
  }

  /** The events of one step of the engine thread. */
  step(step: ThreadStep): EngineEvent[] {
    const events: EngineEvent[] = [];
    const out: StepOutcome = { events, unwanted: [] };
    for (const { firstHandle, cachedTokens, queuedMs } of step.started) {
      const live = this.#byHandle.get(firstHandle);
      if (live === undefined) continue;
      this.#waiting--;
      events.push(...live.start(cachedTokens, queuedMs));
    }
    for (const { firstHandle, rows } of step.scores ?? []) {
      const live = this.#byHandle.get(firstHandle);
      if (!(live instanceof LiveRequest)) continue;
      events.push(...live.scores(rows));
      for (const { choice, token, end, row } of live.released()) {
        this.#sampled(live, choice, token, end, row, out);
      }
    }
    for (const { handle, values } of step.embeddings ?? []) this.#embedded(handle, values, events);
    for (let i = 0; i < step.handles.length; i++) {
      const handle = step.handles[i] as number;
      const live = this.#byHandle.get(handle);
      if (!(live instanceof LiveRequest)) continue;
      const end = step.ends[i] as number;
      const reason = REASONS.get(end);
      if (reason !== undefined) {
        events.push(this.#failure(live, new AppError(...reason)));
        continue;
      }
      const choice = handle - live.firstHandle;
      const token = step.tokens[i] as number;
      this.#sampled(live, choice, token, end, step.logprobs?.[i], out);
    }
    const { unwanted } = out;
    if (unwanted.length > 0) this.#options.command({ kind: "end", handles: unwanted });
    return events;
  }

  #sampled(
    live: LiveRequest,
    choice: number,
    token: number,
    end: number,
    row: RowLogprobs | undefined,
    { events, unwanted }: StepOutcome,
  ): void {
    if (live.token(choice, token, end, row, events)) unwanted.push(live.firstHandle + choice);
    this.#endIfDone(live, events);
  }

  #embedded(handle: number, values: Float32Array | undefined, events: EngineEvent[]): void {
    const live = this.#byHandle.get(handle);
    if (!(live instanceof LiveEmbedding)) return;
    if (values === undefined) {
      events.push(this.#failure(live, new AppError("engine_failed", BROKEN)));
      return;
    }
    events.push(live.vector(handle, values));
    this.#endIfDone(live, events);
  }

  #endIfDone(live: Live, events: EngineEvent[]): void {
    if (!live.isDone) return;
    events.push({ type: "done", id: live.id, usage: live.usage });
    this.#forget(live);
  }

  /** Reads the prompts and passes them on; long ones come back later, and the streams continue. */
  #prepare(live: LiveComputation): void {
    const { table, abilities, reader, longPrompts } = this.#options;
    const inputs = inputsOf(live);
    const use = live instanceof LiveEmbedding ? "embed" : "generate";
    try {
      checkRequest(live.request, table.flags.length, abilities);
      if (live instanceof LiveRequest) checkEffort(live.request, this.#texts.style);
      if (!LongPrompts.areLong(inputs)) {
        this.#constrain(
          live,
          inputs.map((input, i) => located(live, i, () => reader.read(input, use))),
        );
        return;
      }
      const readings = inputs.map((input) => longPrompts.read({ input, use }, live.options));
      live.stopReading = () => {
        for (const { cancel } of readings) cancel();
      };
      const prompts = readings.map(async ({ tokens }, i) => {
        const [read] = await Promise.allSettled([tokens]);
        return located(live, i, () => settledValue(read));
      });
      Promise.all(prompts).then(
        (read) => this.#constrain(live, read),
        (error) => this.#fail(live, toAppError(error)),
      );
    } catch (error) {
      this.#fail(live, toAppError(error));
    }
  }

  /** Has the grammar compiled; the request follows at once, before the grammar may be forgotten. */
  #constrain(live: LiveComputation, prompts: readonly Int32Array[]): void {
    const isText = live instanceof LiveRequest;
    const isOpen = isText && this.#isOpen(live.request, prompts[0] as Int32Array);
    const source = isText ? grammarOf(live.request, isOpen) : undefined;
    if (source === undefined) {
      this.#admitSafely(live, prompts, NO_GRAMMAR);
      return;
    }
    this.#options.grammars.idOf(source, live.options).then(
      (grammar) => this.#admitSafely(live, prompts, grammar),
      (error) => this.#fail(live, toAppError(error)),
    );
  }

  #admitSafely(live: LiveComputation, prompts: readonly Int32Array[], grammar: number): void {
    // It may have been cancelled while its prompts were tokenized.
    if (!this.#live.has(live.id)) return;
    try {
      this.#admit(live, prompts, grammar);
    } catch (error) {
      this.#fail(live, toAppError(error));
    }
  }

  #admit(live: LiveComputation, prompts: readonly Int32Array[], grammar: number): void {
    for (const { length } of prompts) live.promptTokens += length;
    live.firstHandle = this.#nextHandle;
    this.#nextHandle = (this.#nextHandle + live.sequences) % HANDLE_LIMIT;
    for (let sequence = 0; sequence < live.sequences; sequence++) {
      this.#byHandle.set(live.firstHandle + sequence, live);
    }
    if (live instanceof LiveEmbedding) {
      const { fairKey, priority } = live.options;
      const { firstHandle } = live;
      this.#options.command({ kind: "embed", firstHandle, prompts, fairKey, priority });
      return;
    }
    const { limits } = this.#options;
    const prompt = prompts[0] as Int32Array;
    const isOpen = this.#isOpen(live.request, prompt);
    live.read(prompt, isOpen);
    const maxTokens = outputLimit(live, limits);
    live.repeat(maxTokens);
    if (live.isDone) {
      this.#waiting--;
      const events = live.start(0, 0);
      this.#endIfDone(live, events);
      this.#options.emit(events);
      return;
    }
    const reasoning = this.#limitOf(live.request, isOpen);
    const isDeterministic = isComputedAlone(live.request, this.#options.deterministic);
    const read = { prompt, maxTokens, grammar, reasoning, isDeterministic };
    this.#options.command(toThreadSubmit(live, read));
  }

  /** Whether the prompt of a chat ends within reasoning. */
  #isOpen({ input }: GenerateRequest, prompt: Int32Array): boolean {
    if (input.kind !== "chat" || this.#texts.style.reasoning === undefined) return false;
    const end = Array.from(prompt.subarray(-OPENING_TOKENS), (token) =>
      Buffer.from(this.#texts.pieces.bytes(token)).toString("latin1"),
    );
    return end.join("").trimEnd().endsWith(REASONING_TAGS[0]);
  }

  #limitOf(request: GenerateRequest, isOpen: boolean): ReasoningLimit | undefined {
    if (this.#texts.style.reasoning === undefined) return undefined;
    const { reader } = this.#options;
    const tokens = reasoningBudget(request, reader.template);
    if (tokens === undefined || this.#texts.style.form.family === "harmony") return undefined;
    this.#closing ??= reader.within(`\n${REASONING_TAGS[1]}\n\n`);
    return { tokens, isOpen, closing: this.#closing };
  }

  #expire(live: Live): void {
    const message = `the request did not end within its ${live.options.deadlineMs} ms`;
    this.#fail(live, new AppError("deadline_exceeded", message));
  }

  #fail(live: Live, error: AppError): void {
    if (!this.#live.has(live.id)) return;
    this.#options.emit([this.#failure(live, error)]);
  }

  /** Ends the request; returns its last event, with the reason, which the caller sends. */
  #failure(live: Live, error: AppError): EngineEvent {
    const handles = live.openHandles;
    if (handles.length > 0) this.#options.command({ kind: "end", handles });
    this.#forget(live);
    return failedEvent(live.id, error, live);
  }

  #forget(live: Live): void {
    clearTimeout(live.deadline);
    live.stopReading?.();
    if (!live.started) this.#waiting--;
    this.#live.delete(live.id);
    if (live.firstHandle < 0) return;
    for (let sequence = 0; sequence < live.sequences; sequence++) {
      this.#byHandle.delete(live.firstHandle + sequence);
    }
  }
}

function failedEvent(id: number, { code, message, param }: AppError, live?: Live): EngineEvent {
  const usage = live?.started ? { usage: live.usage } : {};
  const error = { code, message, ...(param === undefined ? {} : { param }), ...usage };
  return { type: "failed", id, error };
}

function inputsOf(live: LiveComputation): readonly (EngineInput | PairInput)[] {
  return live instanceof LiveEmbedding ? live.request.inputs : [live.request.input];
}

/** Runs the reading of an input; its fault names which of several inputs it is. */
function located<T>(live: LiveComputation, index: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const { code, message, param } = toAppError(error);
    const own = live instanceof LiveEmbedding ? `input[${index}]` : param;
    throw new AppError(code, message, { param: own, cause: error });
  }
}

function settledValue<T>(result: PromiseSettledResult<T>): T {
  if (result.status === "rejected") throw result.reason;
  return result.value;
}

/** The grammar that constrains the text; undefined for free text. */
function grammarOf(request: GenerateRequest, isOpen: boolean): GrammarSource | undefined {
  const { format, toolUse } = request;
  const schema = schemaOf(format);
  if (toolUse === undefined) return schema === undefined ? undefined : { schema, isOpen };
  return {
    schema,
    tools: callableTools(request),
    isRequired: toolUse.choice === "required",
    isParallel: toolUse.parallel,
    isOpen,
  };
}

function schemaOf(format: GenerateRequest["format"]): string | undefined {
  if (format === "text") return undefined;
  return format === "json_object" ? '{"type":"object"}' : format.schema;
}

function isComputedAlone(
  { deterministic, sampling }: GenerateRequest,
  mode: DeterministicMode,
): boolean {
  const byMode = mode === "always" || (mode === "seed" && sampling.seed !== undefined);
  return deterministic ?? byMode;
}
