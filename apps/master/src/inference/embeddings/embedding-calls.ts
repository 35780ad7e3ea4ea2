import { AppError, toAppError } from "@heddle/base/errors";
import { type EmbeddingRequest, parseEmbeddingRequest } from "@heddle/contracts/api/embeddings";
import type { EngineEvent, PlainInput } from "@heddle/contracts/engine";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { inLanes } from "../in-lanes.ts";
import { cutShort, InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import { normalised, VectorMemory, vectorJson } from "./vectors.ts";

/** Inputs of one request to an engine: enough to keep it busy, few enough to repeat. */
const SHARD_INPUTS = 32;
/** Shards of a call at once: one is computed while the next waits beside it. */
const SHARDS_PER_REPLICA = 2;
const MAX_SHARDS_AT_ONCE = 16;
/** Tries of a shard whose worker is lost: nothing of the answer was sent. */
const MAX_TRIES = 3;
const MAX_HELD_BYTES = 256 * 2 ** 20;
/** What an input may get beside its text, as a begin and an end token. */
const EXTRA_TOKENS = 2;

interface Prepared extends PermittedCall {
  readonly request: EmbeddingRequest;
  readonly inputs: readonly PlainInput[];
}

/** A part of a call's inputs, which one engine embeds. */
interface Shard {
  /** The first input's position in the call. */
  readonly at: number;
  readonly inputs: readonly PlainInput[];
  begun: boolean;
}

/** POST /embeddings: the inputs are divided over the replicas, and joined in order. */
export class EmbeddingCalls {
  readonly #calls: InferenceCalls;
  readonly #memory = new VectorMemory(MAX_HELD_BYTES);

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
  }

  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.#calls.answer(
      reply,
      () => this.#prepare(http, reply),
      (prepared, signal) => this.#run(http, reply, prepared, signal),
    );
  }

  #prepare(http: CallerRequest, reply: FastifyReply): Prepared {
    const request = parseEmbeddingRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const inputs = inputsOf(request.input);
    const permitted = this.#calls.permit(http, reply, {
      model,
      promptTokens: inputs.reduce((sum, input) => sum + estimatedTokens(input), 0),
      outputTokens: 0,
      engineRequests: Math.ceil(inputs.length / SHARD_INPUTS),
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
    const vectors = new Array<Float32Array>(prepared.inputs.length);
    let held = 0;
    const keep = (input: number, values: Float32Array) => {
      this.#memory.take(values.byteLength);
      held += values.byteLength;
      vectors[input] = values;
    };
    try {
      await this.#embed(http, prepared, keep, signal);
      const pieces = answerPieces(prepared, vectors);
      return await this.#calls.sendPieces(http, reply, prepared, pieces, signal);
    } finally {
      this.#memory.give(held);
    }
  }

  /** Embeds all shards, several at once; the first failure ends the others. */
  async #embed(
    http: CallerRequest,
    prepared: Prepared,
    keep: (input: number, values: Float32Array) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const replicas = Math.max(1, this.#calls.parts.models.readyReplicas(prepared.model));
    const lanes = Math.min(MAX_SHARDS_AT_ONCE, replicas * SHARDS_PER_REPLICA);
    await inLanes(shardsOf(prepared.inputs), lanes, signal, (shard, either) =>
      this.#embedShard(http, prepared, shard, keep, either),
    );
  }

  async #embedShard(
    http: CallerRequest,
    prepared: Prepared,
    shard: Shard,
    keep: (input: number, values: Float32Array) => void,
    signal: AbortSignal,
  ): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        const vectors = await this.#tryShard(http, prepared, shard, signal);
        vectors.forEach((values, i) => {
          keep(shard.at + i, values);
        });
        return;
      } catch (thrown) {
        const failure = toAppError(thrown);
        const isLost = failure.code === "worker_lost" || failure.code === "engine_failed";
        if (!isLost || tries >= MAX_TRIES || signal.aborted) {
          throw inCall(failure, shard.at, typeof prepared.request.input);
        }
      }
    }
  }

  async #tryShard(
    http: CallerRequest,
    prepared: Prepared,
    shard: Shard,
    signal: AbortSignal,
  ): Promise<Float32Array[]> {
    const { call, request } = prepared;
    const work = { request: { kind: "embed", inputs: shard.inputs } } as const;
    const { events, node } = await this.#calls.start(http, prepared, work, signal);
    const vectors = new Array<Float32Array>(shard.inputs.length);
    for await (const event of events) {
      if (event.type === "embedding") {
        checkDimensions(request, event.values, prepared.model.id);
        vectors[event.input] = normalised(event.values, request.dimensions ?? undefined);
      } else if (isNew(event, shard)) call.observe(event);
      if (event.type === "started") shard.begun = true;
      if (event.type === "done") return vectors;
    }
    throw cutShort(node);
  }
}

/** A repeated shard starts once for the books. */
function isNew(event: EngineEvent, { begun }: Shard): boolean {
  return event.type !== "started" || !begun;
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

/** One token per three bytes of text; the engine's count replaces it. */
function estimatedTokens(input: PlainInput): number {
  if (input.kind === "tokens") return input.tokens.length;
  return EXTRA_TOKENS + Math.ceil(Buffer.byteLength(input.text) / 3);
}

function shardsOf(inputs: readonly PlainInput[]): Shard[] {
  const shards: Shard[] = [];
  for (let at = 0; at < inputs.length; at += SHARD_INPUTS) {
    shards.push({ at, inputs: inputs.slice(at, at + SHARD_INPUTS), begun: false });
  }
  return shards;
}

function checkDimensions({ dimensions }: EmbeddingRequest, values: Float32Array, model: string) {
  if (dimensions == null || dimensions <= values.length) return;
  const message = `Invalid value for 'dimensions': the vectors of ${model} have ${values.length} numbers.`;
  throw new AppError("invalid_value", message, { param: "dimensions", model });
}

/** The engine counts the inputs of its shard. */
function inCall(failure: AppError, at: number, inputType: string): AppError {
  const found = /^input\[(\d+)\]$/.exec(failure.param ?? "");
  if (!found) return failure;
  const { code, message, node, model } = failure;
  const param = inputType === "string" ? "input" : `input[${at + Number(found[1])}]`;
  return new AppError(code, message, { param, node, model });
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
