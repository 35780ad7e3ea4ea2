import { AppError, toAppError } from "@heddle/base/errors";
import type {
  ChatMessage,
  EngineEvent,
  EngineInput,
  GenerateRequest,
  SubmitOptions,
} from "@heddle/contracts/engine";
import type { ChatTemplate } from "../text/chat-template.ts";
import { PromptGuard, type PromptPart } from "../text/prompt-guard.ts";
import { JSON_OBJECT_GRAMMAR } from "./grammar.ts";
import { LiveRequest } from "./live-request.ts";
import { PromptBound } from "./prompt-bound.ts";
import type {
  ThreadCommand,
  ThreadStep,
  ThreadSubmit,
  VocabularyTable,
} from "./thread-messages.ts";
import { TokenPieces } from "./token-pieces.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { parsedTokens } from "./vocabulary.ts";

/** What the book needs to know of the loaded model and its process. */
interface BookOptions {
  readonly table: VocabularyTable;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  readonly contextTokens: number;
  readonly maxQueued: number;
  /** Sends a command to the engine thread. */
  readonly command: (command: ThreadCommand) => void;
  /** Takes events that come outside of a step. */
  readonly emit: (events: readonly EngineEvent[]) => void;
}

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
  readonly #guard: PromptGuard;
  readonly #bound: PromptBound;
  readonly #live = new Map<number, LiveRequest>();
  readonly #byHandle = new Map<number, LiveRequest>();
  #nextHandle = 0;
  #waiting = 0;

  constructor(options: BookOptions) {
    this.#options = options;
    this.#pieces = new TokenPieces(options.table);
    this.#guard = new PromptGuard(parsedTokens(options.table));
    this.#bound = new PromptBound(options.table);
  }

  /** Requests that have no slot yet. */
  get waiting(): number {
    return this.#waiting;
  }

  submit(id: number, request: GenerateRequest, options: SubmitOptions): void {
    const { maxQueued } = this.#options;
    if (this.#waiting >= maxQueued) {
      const message = `${this.#waiting} requests wait for this model and at most ${maxQueued} may; try again later`;
      this.#emitFailure(id, new AppError("overloaded", message));
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
      const choice = handle - live.firstHandle;
      const token = step.tokens[i] as number;
      if (live.token(choice, token, step.ends[i] as number, step.logprobs?.[i], events)) {
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

  /** Renders, tokenizes and passes on; a long text comes back later, and the stream goes on. */
  #prepare(live: LiveRequest): void {
    try {
      validate(live.request, this.#options.table.flags.length);
      const tokens = this.#tokenize(live.request.input);
      if (tokens instanceof Promise) {
        tokens.then(
          (prompt) => this.#admitSafely(live, prompt),
          (error) => this.#fail(live, toAppError(error)),
        );
      } else {
        this.#admit(live, tokens);
      }
    } catch (error) {
      this.#fail(live, toAppError(error));
    }
  }

  #tokenize(input: EngineInput): Int32Array | Promise<Int32Array> {
    const { tokenizer } = this.#options;
    switch (input.kind) {
      case "tokens":
        return Int32Array.from(input.tokens);
      case "text":
        this.#refuseHopeless([input.text], "prompt");
        return tokenizer.tokenize(input.text);
      case "chat":
        return this.#tokenizeChat(input.messages);
      default:
        return input satisfies never;
    }
  }

  #tokenizeChat(messages: readonly ChatMessage[]): Int32Array | Promise<Int32Array> {
    const { tokenizer, template } = this.#options;
    const quote = (text: string) => this.#guard.quote(text);
    const text = template.render(messages, { addGenerationPrompt: true, quote });
    const parts = this.#guard.split(text);
    this.#refuseHopeless(parts ?? [text], "messages");
    return parts === undefined ? tokenizer.tokenize(text) : tokenizer.tokenizeParts(parts);
  }

  /** To tokenize megabytes takes seconds: what is too long in any case is refused before. */
  #refuseHopeless(parts: readonly PromptPart[], param: string): void {
    const { contextTokens } = this.#options;
    const tokens = this.#bound.exceeds(parts, contextTokens);
    if (tokens !== undefined) throw tooLong(contextTokens, `at least ${tokens}`, param);
  }

  #admitSafely(live: LiveRequest, prompt: Int32Array): void {
    // It may have been cancelled while its prompt was tokenized.
    if (!this.#live.has(live.id)) return;
    try {
      this.#admit(live, prompt);
    } catch (error) {
      this.#fail(live, toAppError(error));
    }
  }

  #admit(live: LiveRequest, prompt: Int32Array): void {
    const { contextTokens } = this.#options;
    live.promptTokens = prompt.length;
    if (prompt.length === 0) {
      throw new AppError("invalid_value", "the prompt has no tokens; send some text", {
        param: "input",
      });
    }
    if (prompt.length >= contextTokens) {
      const param = live.request.input.kind === "chat" ? "messages" : "prompt";
      throw tooLong(contextTokens, `${prompt.length}`, param);
    }
    live.firstHandle = this.#nextHandle;
    this.#nextHandle = (this.#nextHandle + live.request.choices) % HANDLE_LIMIT;
    for (const handle of live.openHandles) this.#byHandle.set(handle, live);
    this.#options.command(toThreadSubmit(live, prompt, contextTokens - prompt.length));
  }

  #expire(live: LiveRequest): void {
    const message = `the request did not end within its ${live.options.deadlineMs} ms`;
    this.#fail(live, new AppError("deadline_exceeded", message));
  }

  #fail(live: LiveRequest, error: AppError): void {
    if (!this.#live.has(live.id)) return;
    const handles = live.openHandles;
    if (handles.length > 0) this.#options.command({ kind: "end", handles });
    this.#forget(live);
    this.#emitFailure(live.id, error, live);
  }

  #emitFailure(id: number, { code, message, param }: AppError, live?: LiveRequest): void {
    const usage = live?.started ? { usage: live.usage } : {};
    const error = { code, message, ...(param === undefined ? {} : { param }), ...usage };
    this.#options.emit([{ type: "failed", id, error }]);
  }

  #forget(live: LiveRequest): void {
    clearTimeout(live.deadline);
    if (!live.started) this.#waiting--;
    this.#live.delete(live.id);
    if (live.firstHandle < 0) return;
    for (let choice = 0; choice < live.request.choices; choice++) {
      this.#byHandle.delete(live.firstHandle + choice);
    }
  }
}

function tooLong(contextTokens: number, tokens: string, param: string): AppError {
  const message =
    `This model's maximum context length is ${contextTokens} tokens. However, your prompt has ` +
    `${tokens} tokens and leaves no room for an answer. Please shorten it.`;
  return new AppError("context_length_exceeded", message, { param });
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

function toThreadSubmit(live: LiveRequest, prompt: Int32Array, room: number): ThreadSubmit {
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
      presencePenalty: sampling.presencePenalty,
      frequencyPenalty: sampling.frequencyPenalty,
      seed: sampling.seed ?? Math.floor(Math.random() * 2 ** 32),
      biasTokens: Int32Array.from(sampling.logitBias, ({ token }) => token),
      biasValues: Float32Array.from(sampling.logitBias, ({ bias }) => bias),
    },
    topLogprobs: request.topLogprobs ?? -1,
    grammar: request.format === "json_object" ? JSON_OBJECT_GRAMMAR : "",
    fairKey: options.fairKey,
    priority: options.priority,
  };
}
