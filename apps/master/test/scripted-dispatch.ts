import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import type {
  EmbedRequest,
  EngineEvent,
  FinishReason,
  GenerateRequest,
  ReadRequest,
  TokenLogprob,
} from "@heddle/contracts/engine";
import type {
  CallWait,
  DispatchLoad,
  DispatchStats,
  InferenceAnswer,
  InferenceDispatch,
  QueueStats,
  WaitView,
} from "../src/inference/dispatch/inference-port.ts";
import type { InferenceCall } from "../src/nodes/replicas/ready-replica.ts";

export interface Script {
  /** Before each token. */
  tokenDelayMs?: number;
  /** Tokens after which the call fails with this error. */
  failAfter?: { tokens: number; error: AppError };
  /** The start waits for it, as for a free replica. */
  startAfter?: Promise<unknown>;
  /** What a call waits for meanwhile. */
  waits?: WaitView;
  /** Rejects the start. */
  refuseWith?: AppError;
  /** Tokens after which the events end without `done`, as on the loss of a worker. */
  vanishAfter?: number;
  /** The same for each of the next requests. */
  vanishes?: (number | undefined)[];
  /** How each choice ends, in place of what its tokens say. */
  finish?: { reason: FinishReason; stop?: string };
  /** The first token of an answer with its alternatives. */
  firstToken?: (request: GenerateRequest) => TokenLogprob;
  /** Whether the next requests for embeddings end without `done`. */
  loseShards?: boolean[];
}

/** Calls that are kept for tests. */
const MAX_REMEMBERED = 100;

/**
 * A dispatch that answers at once: token i of choice c is the i-th word of the last message, or
 * `word<i>`. It obeys maxTokens, choices, stop and the signal.
 */
export class ScriptedDispatch implements InferenceDispatch {
  script: Script = {};
  readonly calls: InferenceCall[] = [];
  cancelled = 0;
  running = 0;
  generatedTokens = 0;
  queued = 0;

  loadOf(): DispatchLoad {
    return { queued: this.queued, ttftMs: undefined };
  }

  queues(): QueueStats[] {
    if (this.queued === 0) return [];
    const byPriority = { batch: 0, normal: this.queued, interactive: 0 };
    return [{ deployment: "tiny", waiting: this.queued, byPriority, longestWaitMs: 0 }];
  }

  stats(): DispatchStats {
    return {
      queued: this.queued,
      started: this.calls.length,
      retries: 0,
      continued: 0,
      overloaded: 0,
    };
  }

  async start(call: InferenceCall, signal: AbortSignal, wait?: CallWait): Promise<InferenceAnswer> {
    this.calls.push(call);
    if (this.calls.length > MAX_REMEMBERED) this.calls.shift();
    const { waits } = this.script;
    const endWait = waits && wait?.begin(() => waits);
    await this.script.startAfter;
    endWait?.();
    if (this.script.refuseWith) throw this.script.refuseWith;
    signal.throwIfAborted();
    const { request } = call;
    if (request.kind === "embed") {
      return { node: "node-test", events: vectorsOf(request, this.script.loseShards?.shift()) };
    }
    if (request.kind === "read") return { node: "node-test", events: readingOf(request) };
    const script = { ...this.script };
    script.vanishAfter = script.vanishes?.shift() ?? script.vanishAfter;
    return { node: "node-test", events: this.#events(request, script, signal) };
  }

  async *#events(
    request: GenerateRequest,
    script: Script,
    signal: AbortSignal,
  ): AsyncGenerator<EngineEvent> {
    this.running++;
    let spent = 0;
    const prompt = promptWords(request);
    const usage = () => ({
      promptTokens: prompt.length,
      cachedTokens: 1,
      completionTokens: spent,
      reasoningTokens: 0,
    });
    try {
      yield { type: "started", id: 1, promptTokens: prompt.length, cachedTokens: 1, queuedMs: 1 };
      const perChoice = Math.min(request.maxTokens ?? 5, 10_000);
      for (let token = 0; token < perChoice; token++) {
        for (let choice = 0; choice < request.choices; choice++) {
          if (script.tokenDelayMs) await delay(script.tokenDelayMs, undefined, { signal });
          signal.throwIfAborted();
          if (script.vanishAfter === spent) return;
          if (script.failAfter?.tokens === spent) {
            const { code, message } = script.failAfter.error;
            yield { type: "failed", id: 1, error: { code, message, usage: usage() } };
            return;
          }
          spent++;
          this.generatedTokens++;
          const delta = deltaOf(
            choice,
            token === 0 ? "" : " ",
            prompt[token] ?? `word${token}`,
            request,
          );
          const first = token === 0 ? script.firstToken?.(request) : undefined;
          yield first ? { ...delta, text: first.token, logprobs: [first] } : delta;
        }
      }
      for (let choice = 0; choice < request.choices; choice++) {
        yield {
          type: "finish",
          id: 1,
          choice,
          reason: request.maxTokens === undefined ? "stop" : "length",
          ...script.finish,
        };
      }
      yield { type: "done", id: 1, usage: usage() };
    } finally {
      this.running--;
      if (signal.aborted) this.cancelled++;
    }
  }
}

/** The vector of an input is its length and the numbers 1 and 2, of a pair its query's share. */
async function* vectorsOf({ inputs }: EmbedRequest, isLost = false): AsyncGenerator<EngineEvent> {
  const lengths = inputs.map((input) => {
    if (input.kind === "pair") return input.query.length + input.document.length;
    return input.kind === "text" ? input.text.length : input.tokens.length;
  });
  const promptTokens = lengths.reduce((sum, length) => sum + length, 0);
  yield { type: "started", id: 1, promptTokens, cachedTokens: 0, queuedMs: 1 };
  for (const [input, length] of [...lengths.entries()].reverse()) {
    const given = inputs[input];
    const values = given?.kind === "pair" ? [given.query.length / length] : [length, 1, 2];
    yield { type: "embedding", id: 1, input, values: Float32Array.from(values) };
  }
  if (isLost) return;
  const usage = { promptTokens, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  yield { type: "done", id: 1, usage };
}

/** Each word of a chat is a token. */
async function* readingOf({ input }: ReadRequest): AsyncGenerator<EngineEvent> {
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  yield { type: "started", id: 1, promptTokens: 0, cachedTokens: 0, queuedMs: 0 };
  yield { type: "reading", id: 1, count: promptWords({ input }).length };
  yield { type: "done", id: 1, usage };
}

function promptWords({ input }: Pick<GenerateRequest, "input">): string[] {
  if (input.kind !== "chat") return [];
  return input.messages.flatMap((message) => (message.content ?? "").split(/\s+/));
}

function deltaOf(
  choice: number,
  space: string,
  word: string,
  request: GenerateRequest,
): EngineEvent & { readonly type: "delta" } {
  const text = space + word;
  const logprobs =
    request.topLogprobs === undefined ? undefined : [logprobOf(text, request.topLogprobs)];
  return { type: "delta", id: 1, choice, text, tokens: 1, logprobs };
}

function logprobOf(text: string, alternatives: number): TokenLogprob {
  const entry = { token: text, bytes: [...Buffer.from(text)], logprob: -0.5 };
  return { ...entry, top: Array.from({ length: alternatives }, () => entry) };
}
