import { AppError, toAppError } from "@heddle/base/errors";
import {
  parseRerankRequest,
  type RerankAnswer,
  type RerankRequest,
} from "@heddle/contracts/api/inference/rerank";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import {
  EmbeddingShards,
  type EmbedInput,
  estimatedTokens,
  shardCount,
  underParam,
} from "../embeddings/embedding-shards.ts";
import { InferenceCalls, type PermittedCall } from "../inference-calls.ts";

/**
 * The most characters of the query, over all documents: a shard of them is one message to its
 * worker.
 */
const MAX_REPEATED_CHARS = 16 * 2 ** 20;

interface Prepared extends PermittedCall {
  readonly request: RerankRequest;
  readonly texts: readonly string[];
  readonly method: Scored["method"];
}

/** The scores of the documents in their order. */
interface Scored {
  readonly method: RerankAnswer["method"];
  readonly scores: readonly number[];
}

/** POST /rerank: pairs scored by a rerank model, or the cosine of a model's embeddings. */
export class RerankCalls {
  readonly #calls: InferenceCalls;
  readonly #shards: EmbeddingShards;

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
    this.#shards = new EmbeddingShards(calls);
  }

  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.#calls.answer(
      reply,
      () => this.#prepare(http, reply),
      async (prepared, signal) => {
        const scored = await this.#scored(http, prepared, signal);
        this.#calls.send(http, reply, prepared, JSON.stringify(answerOf(prepared, scored)));
        return undefined;
      },
    );
  }

  async #prepare(http: CallerRequest, reply: FastifyReply): Promise<Prepared> {
    const request = parseRerankRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const texts = request.documents.map((each) => (typeof each === "string" ? each : each.text));
    const method = this.#calls.parts.models.ranks(model) ? "rank" : "cosine";
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens: promptTokens(method, request.query, texts),
      outputTokens: 0,
      engineRequests: shardCount(texts.length) + (method === "rank" ? 0 : 1),
      endUser: request.user ?? undefined,
    });
    return { ...permitted, request, texts, method };
  }

  async #scored(http: CallerRequest, prepared: Prepared, signal: AbortSignal): Promise<Scored> {
    const { method } = prepared;
    try {
      return { method, scores: await this.#scores(method, http, prepared, signal) };
    } catch (thrown) {
      const failure = toAppError(thrown);
      // Before a replica reports what the model is, its engine does.
      const isRank = failure.param === "model" && this.#calls.parts.models.ranks(prepared.model);
      if (method === "rank" || !isRank) throw failure;
      return { method: "rank", scores: await this.#scores("rank", http, prepared, signal) };
    }
  }

  async #scores(
    method: Scored["method"],
    http: CallerRequest,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<number[]> {
    const { request, texts } = prepared;
    const query: EmbedInput = { kind: "text", text: request.query };
    const [vector] =
      method === "rank" ? [] : await this.#embed(http, prepared, [query], signal, () => "query");
    const documents = documentInputs(method, request.query, texts);
    const vectors = await this.#embed(http, prepared, documents, signal, (i) => `documents[${i}]`);
    return vectors.map((values) => (vector ? cosine(vector, values) : scoreOf(values)));
  }

  /** The vectors in order; a fault of an input has its name in the request. */
  async #embed(
    http: CallerRequest,
    prepared: Prepared,
    inputs: readonly EmbedInput[],
    signal: AbortSignal,
    paramOf: (input: number) => string,
  ): Promise<Float32Array[]> {
    const vectors = new Array<Float32Array>(inputs.length);
    const keep = (at: number, values: Float32Array) => {
      vectors[at] = values;
    };
    try {
      await this.#shards.embed(http, prepared, inputs, keep, signal);
      return vectors;
    } catch (thrown) {
      const failure = toAppError(thrown);
      const found = /^input\[(\d+)\]$/.exec(failure.param ?? "");
      throw found ? underParam(failure, paramOf(Number(found[1]))) : failure;
    }
  }
}

/** A rerank model reads the query again with each document. */
function promptTokens(method: Scored["method"], query: string, texts: readonly string[]): number {
  const tokensOf = (text: string) => estimatedTokens({ kind: "text", text });
  const queries = method === "rank" ? texts.length : 1;
  return queries * tokensOf(query) + texts.reduce((sum, text) => sum + tokensOf(text), 0);
}

/** Throws where the query is too long to be sent with each document. */
function documentInputs(method: Scored["method"], query: string, texts: readonly string[]) {
  if (method === "rank" && query.length * texts.length > MAX_REPEATED_CHARS) {
    const message = `Invalid value for 'query': it is read with each document, and has at most ${MAX_REPEATED_CHARS} characters over all ${texts.length}. Shorten it, or send fewer documents.`;
    throw new AppError("invalid_value", message, { param: "query" });
  }
  return texts.map((text): EmbedInput => {
    return method === "rank" ? { kind: "pair", query, document: text } : { kind: "text", text };
  });
}

/** One score is a logit; of several labels the library has made probabilities, the first of them yes. */
function scoreOf(values: Float32Array): number {
  const [first = 0] = values;
  return values.length === 1 ? 1 / (1 + Math.exp(-first)) : first;
}

function cosine(one: Float32Array, other: Float32Array): number {
  let product = 0;
  for (let i = 0; i < one.length; i++) product += (one[i] as number) * (other[i] as number);
  const norms = Math.hypot(...one) * Math.hypot(...other);
  return norms > 0 ? product / norms : 0;
}

function answerOf({ request, texts, model, call }: Prepared, { method, scores }: Scored) {
  const best = [...scores.entries()]
    .sort(([, one], [, other]) => other - one)
    .slice(0, request.top_n ?? undefined);
  const { promptTokens } = call.usage;
  return {
    model: model.id,
    method,
    results: best.map(([index, relevance_score]) => ({
      index,
      relevance_score,
      ...(request.return_documents && { document: { text: texts[index] ?? "" } }),
    })),
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  } satisfies RerankAnswer;
}
