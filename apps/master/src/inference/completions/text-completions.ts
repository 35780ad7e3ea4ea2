import { AppError } from "@heddle/base/errors";
import {
  type CompletionRequest,
  DEFAULT_MAX_TOKENS,
  parseCompletionRequest,
} from "@heddle/contracts/api/completions";
import type { EngineEvent, GenerateRequest, PlainInput } from "@heddle/contracts/engine";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import type { EventStream } from "../../http/event-stream.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { askedTokens } from "../chat/chat-completions.ts";
import { usageJson } from "../chat/chat-format.ts";
import { generationOf } from "../chat/chat-request.ts";
import { fingerprintOf, InferenceCalls } from "../inference-calls.ts";
import { type ChoicePart, choiceParts } from "../parts/choice-parts.ts";
import { type DividedCall, runParts } from "../parts/run-parts.ts";
import { TextChoice } from "./text-choice.ts";

/** A request whose key permits it. */
export interface PreparedCompletion extends DividedCall {
  readonly request: CompletionRequest;
  readonly prompts: readonly PlainInput[];
  /** The choices of the first prompt, then those of the next. */
  readonly choices: readonly TextChoice[];
  /** The answer's opened object. */
  readonly head: string;
}

type Part = ReturnType<TextChoice["finish"]>;

/** POST /completions: prompts and their choices are divided over the replicas, and joined in order. */
export class TextCompletions {
  readonly #calls: InferenceCalls;

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
  }

  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.#calls.answer(
      reply,
      () => this.prepare(http, reply),
      (prepared, signal) =>
        prepared.request.stream === true
          ? this.#stream(http, reply, prepared, signal)
          : this.#whole(http, reply, prepared, signal),
    );
  }

  /** Parses and admits the request. */
  async prepare(
    http: CallerRequest,
    reply: FastifyReply,
    id = `cmpl-${uniqueSuffix()}`,
  ): Promise<PreparedCompletion> {
    const request = parseCompletionRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const prompts = promptsOf(request.prompt);
    const count = candidatesOf(request) * prompts.length;
    const after = request.suffix ? estimatedTokens({ kind: "text", text: request.suffix }) : 0;
    const promptTokens = prompts.reduce((sum, prompt) => sum + estimatedTokens(prompt) + after, 0);
    const asked = askedTokens(request, model, this.#calls.parts.models) ?? DEFAULT_MAX_TOKENS;
    const maxTokens = this.#calls.boundOutput(http, {
      model,
      asked,
      promptTokens,
      choices: count,
    });
    const { models } = this.#calls.parts;
    const mayDivide = request.seed == null || models.countsSeeds(model);
    const requests = prompts.map((prompt) => engineRequest(request, prompt, maxTokens));
    const replicas = mayDivide ? models.readyReplicas(model) : 1;
    const parts = choiceParts(requests, Math.max(1, replicas));
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens,
      outputTokens: (maxTokens ?? asked) * count,
      engineRequests: parts.length,
      tier: request.service_tier,
      endUser: request.user ?? undefined,
    });
    const scores = request.logprobs ?? undefined;
    const choices = Array.from({ length: count }, (_, i) => new TextChoice(i, scores));
    const created = Math.floor(Date.now() / 1000);
    const names = `"model":${JSON.stringify(model.id)},"system_fingerprint":${JSON.stringify(fingerprintOf(model))}`;
    const head = `{"id":"${id}","object":"text_completion","created":${created},${names}`;
    const later = request.priority ?? 0;
    const mayHold = request.stream !== true;
    return { ...permitted, parts, later, mayHold, request, prompts, choices, head };
  }

  async #whole(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: PreparedCompletion,
    signal: AbortSignal,
  ): Promise<undefined> {
    const body = await this.collect(http, prepared, signal);
    this.#calls.send(http, reply, prepared, body);
  }

  /** The whole answer. */
  async collect(
    http: CallerRequest,
    prepared: PreparedCompletion,
    signal: AbortSignal,
  ): Promise<string> {
    const parts = prepared.choices.map((): Part[] => []);
    await this.#generate(http, prepared, signal, (part) => {
      parts[part.index]?.push(part);
    });
    const joined = prepared.choices.map((choice, i) => choice.joined(parts[i] ?? []));
    const choices = bestOf(prepared, joined);
    const usage = usageJson(prepared.call.usage);
    return `${prepared.head},"choices":${JSON.stringify(choices)},"usage":${usage}}`;
  }

  #stream(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: PreparedCompletion,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const { head, request } = prepared;
    const hasUsage = request.stream_options?.include_usage === true;
    const tail = hasUsage ? ',"usage":null}' : "}";
    const pump = async (stream: EventStream) => {
      const take = async (part: Part) => {
        const chunk = `data: ${head},"choices":[${JSON.stringify(part)}]${tail}\n\n`;
        if (stream.write(chunk)) return;
        await stream.drained();
        signal.throwIfAborted();
      };
      await this.#generate(http, prepared, signal, take);
      const usage = usageJson(prepared.call.usage);
      return hasUsage ? `data: ${head},"choices":[],"usage":${usage}}\n\n` : "";
    };
    return this.#calls.stream(http, reply, prepared, signal, pump);
  }

  #generate(
    http: CallerRequest,
    prepared: PreparedCompletion,
    signal: AbortSignal,
    take: (part: Part) => void | Promise<void>,
  ): Promise<void> {
    const { request, prompts, choices } = prepared;
    const sink = {
      take: async (event: EngineEvent, { prompt, first, request: own }: ChoicePart) => {
        const input = prompts[prompt];
        const isKnown = request.echo === true && own.echo === undefined;
        const echoed = isKnown && input?.kind === "text" ? input.text : undefined;
        const drawn = choices.slice(first, first + own.choices);
        for (const part of partsOf(event, drawn, echoed)) await take(part);
      },
      failure: (failure: AppError, { prompt }: ChoicePart) =>
        inCall(failure, prompts.length > 1 ? `prompt[${prompt}]` : "prompt"),
    };
    return runParts(this.#calls, http, prepared, sink, signal);
  }
}

function engineRequest(
  request: CompletionRequest,
  input: PlainInput,
  maxTokens: number | undefined,
): GenerateRequest {
  const count = candidatesOf(request);
  // A text without scores is known here.
  const isKnown = input.kind === "text" && request.logprobs == null;
  return {
    ...generationOf(request, maxTokens),
    choices: count,
    input: request.suffix ? { ...input, suffix: request.suffix } : input,
    topLogprobs: request.logprobs ?? (count > (request.n ?? 1) ? 0 : undefined),
    echo: (request.echo && !isKnown) || undefined,
    format: "text",
  };
}

/** Choices of each prompt that are drawn. */
function candidatesOf({ n, best_of: candidates }: CompletionRequest): number {
  return candidates ?? n ?? 1;
}

/** Each prompt's most likely choices, the best first; all in their order where all are sent. */
function bestOf({ request, choices }: PreparedCompletion, all: readonly Part[]): readonly Part[] {
  const { n } = request;
  const drawn = candidatesOf(request);
  if (drawn === (n ?? 1)) return all;
  const likelihood = (part: Part) => choices[part.index]?.likelihood ?? Number.NEGATIVE_INFINITY;
  const best: Part[] = [];
  for (let at = 0; at < all.length; at += drawn) {
    const candidates = all.slice(at, at + drawn).sort((a, b) => likelihood(b) - likelihood(a));
    best.push(...candidates.slice(0, n ?? 1));
  }
  return best.map((part, index) => ({ ...part, index }));
}

/** `echoed` is the prompt's text where it is not the engine that gives it. */
function partsOf(event: EngineEvent, own: readonly TextChoice[], echoed?: string): Part[] {
  if (event.type === "started" && echoed !== undefined) {
    return own.map((choice) => choice.prompt(echoed));
  }
  if (event.type === "prompt") {
    return own.map((choice) => choice.prompt(event.text, event.logprobs));
  }
  if (event.type !== "delta" && event.type !== "finish") return [];
  const choice = own[event.choice];
  if (choice === undefined) return [];
  if (event.type === "finish") return [choice.finish(event.reason)];
  const isEmpty = event.text === "" && !event.logprobs?.length;
  return isEmpty ? [] : [choice.delta(event.text, event.logprobs)];
}

function promptsOf(prompt: CompletionRequest["prompt"]): readonly PlainInput[] {
  if (typeof prompt === "string") return [{ kind: "text", text: prompt }];
  if (typeof prompt[0] === "number") return [{ kind: "tokens", tokens: prompt as number[] }];
  return (prompt as readonly (string | number[])[]).map((each) =>
    typeof each === "string" ? { kind: "text", text: each } : { kind: "tokens", tokens: each },
  );
}

/** One token per three bytes of text, and a begin token. */
function estimatedTokens(prompt: PlainInput): number {
  if (prompt.kind === "tokens") return prompt.tokens.length;
  return 1 + Math.ceil(Buffer.byteLength(prompt.text) / 3);
}

/** Engines name the one prompt that they know. */
function inCall(failure: AppError, own: string): AppError {
  if (failure.param !== "prompt" && failure.param !== "input") return failure;
  const { code, message, node, model } = failure;
  return new AppError(code, message, { param: own, node, model });
}
