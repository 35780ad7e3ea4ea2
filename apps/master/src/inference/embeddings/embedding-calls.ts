import { AppError, toAppError } from "@heddle/base/errors";
import { type EmbeddingRequest, parseEmbeddingRequest } from "@heddle/contracts/api/embeddings";
import type { PlainInput } from "@heddle/contracts/engine";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import { EmbeddingShards, estimatedTokens, shardCount, underParam } from "./embedding-shards.ts";
import { normalised, VectorMemory, vectorJson } from "./vectors.ts";

const MAX_HELD_BYTES = 256 * 2 ** 20;

interface Prepared extends PermittedCall {
  readonly request: EmbeddingRequest;
  readonly inputs: readonly PlainInput[];
}

/** POST /embeddings: the inputs are divided over the replicas, and joined in order. */
export class EmbeddingCalls {
  readonly #calls: InferenceCalls;
  readonly #shards: EmbeddingShards;
  readonly #memory = new VectorMemory(MAX_HELD_BYTES);

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
    this.#shards = new EmbeddingShards(calls);
  }

  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.#calls.answer(
      reply,
      () => this.#prepare(http, reply),
      (prepared, signal) => this.#run(http, reply, prepared, signal),
    );
  }

  async #prepare(http: CallerRequest, reply: FastifyReply): Promise<Prepared> {
    const request = parseEmbeddingRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const inputs = inputsOf(request.input);
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens: inputs.reduce((sum, input) => sum + estimatedTokens(input), 0),
      outputTokens: 0,
      engineRequests: shardCount(inputs.length),
      endUser: request.user ?? undefined,
    });
    return { ...permitted, request, inputs };
  }

  async #run(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const { request, inputs, model } = prepared;
    const vectors = new Array<Float32Array>(inputs.length);
    let held = 0;
    const keep = (input: number, values: Float32Array) => {
      checkDimensions(request, values, model.id);
      const vector = normalised(values, request.dimensions ?? undefined);
      this.#memory.take(vector.byteLength);
      held += vector.byteLength;
      vectors[input] = vector;
    };
    try {
      await this.#shards.embed(http, prepared, inputs, keep, signal);
      const pieces = answerPieces(prepared, vectors);
      return await this.#calls.sendPieces(http, reply, prepared, pieces, signal);
    } catch (thrown) {
      throw inRequest(toAppError(thrown), typeof request.input);
    } finally {
      this.#memory.give(held);
    }
  }
}

function inputsOf(input: EmbeddingRequest["input"]): readonly PlainInput[] {
  if (typeof input === "string") return [{ kind: "text", text: input }];
  if (isTokens(input)) return [{ kind: "tokens", tokens: input }];
  return input.map((each) =>
    typeof each === "string" ? { kind: "text", text: each } : { kind: "tokens", tokens: each },
  );
}

function isTokens(input: readonly (string | number | number[])[]): input is readonly number[] {
  return typeof input[0] === "number";
}

function checkDimensions({ dimensions }: EmbeddingRequest, values: Float32Array, model: string) {
  if (dimensions == null || dimensions <= values.length) return;
  const message = `Invalid value for 'dimensions': the vectors of ${model} have ${values.length} numbers.`;
  throw new AppError("invalid_value", message, { param: "dimensions", model });
}

/** A single text has no number. */
function inRequest(failure: AppError, inputType: string): AppError {
  const isSingle = inputType === "string" && /^input\[\d+\]$/.test(failure.param ?? "");
  return isSingle ? underParam(failure, "input") : failure;
}

/** The body in pieces: thousands of vectors have tens of megabytes. */
function* answerPieces(
  { request, model, call }: Prepared,
  vectors: readonly Float32Array[],
): Generator<string, void> {
  const format = request.encoding_format ?? "float";
  yield '{"object":"list","data":[';
  for (const [index, values] of vectors.entries()) {
    const comma = index === 0 ? "" : ",";
    const vector = vectorJson(values, format);
    yield `${comma}{"object":"embedding","index":${index},"embedding":${vector}}`;
  }
  const { promptTokens } = call.usage;
  const usage = `{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens}}`;
  yield `],"model":${JSON.stringify(model.id)},"usage":${usage}}`;
}
