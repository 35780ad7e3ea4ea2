import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { AppError, toAppError } from "@heddle/base/errors";
import type { EmbedRequest } from "@heddle/contracts/engine";
import type { CallerRequest } from "../../http/access.ts";
import { cutShort, type InferenceCalls, type PermittedCall } from "../inference-calls.ts";

/** Inputs of one request to an engine: enough to keep it busy, few enough to repeat. */
const SHARD_INPUTS = 32;
/** Shards of a call at once: one is computed while the next waits beside it. */
const SHARDS_PER_REPLICA = 2;
const MAX_SHARDS_AT_ONCE = 16;
/** Tokens that an input may get beside its text: a begin and an end token. */
const EXTRA_TOKENS = 2;

export type EmbedInput = EmbedRequest["inputs"][number];

/** A part of a call's inputs, which one engine embeds. */
interface Shard {
  /** The first input's position in the call. */
  readonly at: number;
  readonly inputs: readonly EmbedInput[];
}

/** Takes the vector of an input, as the model gives it. */
type Keep = (input: number, values: Float32Array) => void;

/** The number of requests to engines that these inputs are divided into. */
export function shardCount(inputs: number): number {
  return Math.ceil(inputs / SHARD_INPUTS);
}

/** One token per three bytes of text; the engine's count replaces it. */
export function estimatedTokens(input: Exclude<EmbedInput, { readonly kind: "pair" }>): number {
  if (input.kind === "tokens") return input.tokens.length;
  return EXTRA_TOKENS + Math.ceil(Buffer.byteLength(input.text) / 3);
}

/** The inputs of calls, divided over the replicas of their model. */
export class EmbeddingShards {
  readonly #calls: InferenceCalls;

  constructor(calls: InferenceCalls) {
    this.#calls = calls;
  }

  /** Embeds all inputs, several shards at once; the first failure ends the others. */
  async embed(
    http: CallerRequest,
    permitted: PermittedCall,
    inputs: readonly EmbedInput[],
    keep: Keep,
    signal: AbortSignal,
  ): Promise<void> {
    const replicas = Math.max(1, this.#calls.parts.models.readyReplicas(permitted.model));
    const limit = Math.min(MAX_SHARDS_AT_ONCE, replicas * SHARDS_PER_REPLICA);
    const embed = (shard: Shard, either: AbortSignal) =>
      this.#embedShard(http, permitted, shard, keep, either);
    await forEachLimit(shardsOf(inputs), limit, embed, signal);
  }

  async #embedShard(
    http: CallerRequest,
    permitted: PermittedCall,
    shard: Shard,
    keep: Keep,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const tally = permitted.call.part();
      const work = { request: { kind: "embed", inputs: shard.inputs } } as const;
      const answer = await this.#calls.start(http, permitted, work, signal);
      for await (const event of answer.events) {
        if (event.type === "embedding") keep(shard.at + event.input, event.values);
        else tally.observe(event);
        if (event.type === "done") return;
      }
      throw cutShort(answer.node);
    } catch (thrown) {
      throw inCall(toAppError(thrown), shard.at);
    }
  }
}

function shardsOf(inputs: readonly EmbedInput[]): Shard[] {
  const shards: Shard[] = [];
  for (let at = 0; at < inputs.length; at += SHARD_INPUTS) {
    shards.push({ at, inputs: inputs.slice(at, at + SHARD_INPUTS) });
  }
  return shards;
}

/** The engine counts the inputs of its shard. */
function inCall(failure: AppError, at: number): AppError {
  const found = /^input\[(\d+)\]$/.exec(failure.param ?? "");
  return found ? underParam(failure, `input[${at + Number(found[1])}]`) : failure;
}

/** The same failure of another parameter. */
export function underParam(failure: AppError, param: string): AppError {
  const { code, message, node, model } = failure;
  return new AppError(code, message, { param, node, model });
}
