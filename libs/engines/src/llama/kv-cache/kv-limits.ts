import { AppError } from "@heddle/base/errors";

/** What the model and the machine say about the KV cache. */
export interface KvFacts {
  /** Tokens that the model was trained to attend to. */
  readonly trainedTokens: number;
  readonly bytesPerToken: number;
  /** Memory that this process may still take. */
  readonly freeBytes: number;
  readonly onCpu: boolean;
  /** False for models whose state cannot be cut at a position (recurrent ones). */
  readonly canShare: boolean;
}

/** What the deployment asks for; absent values are chosen here. */
export interface KvWishes {
  readonly contextTokens?: number | undefined;
  readonly kvTokens?: number | undefined;
  readonly maxSequences?: number | undefined;
  /** The layout must be `slots`, as deterministic answers need it. */
  readonly needsSlots?: boolean | undefined;
  /** The layout must be `unified`, as stages of a model need it. */
  readonly needsPool?: boolean | undefined;
}

/**
 * How the KV cache is laid out. `slots`: every running sequence has a part of its own, and a prefix
 * is copied from one to another. `unified`: one pool of cells, and a prefix is shared by naming.
 */
export interface KvLimits {
  readonly layout: "slots" | "unified";
  /** Tokens that one request may use; in `slots` each slot has room for that many. */
  readonly contextTokens: number;
  /** Tokens that the whole cache holds. */
  readonly kvTokens: number;
  readonly maxSequences: number;
  /** Tokens that unused prefixes may keep; in `unified` the latest one is kept whole. */
  readonly retainedTokens: number;
}

/** The most sequences that may run at once: the unified layout needs other ids for its prefixes. */
export const MAX_RUNNING_SEQUENCES = 64;

const DEFAULT_MAX_SEQUENCES = 16;

/** The context where neither the deployment nor a shorter model says otherwise. */
const DEFAULT_CONTEXT_TOKENS = 8192;

/** The library rounds the cells of a cache or slot up to a multiple of this. */
const KV_PADDING = 256;

/** The part of the free memory that the cache may take, and what it takes at most unasked. */
const KV_MEMORY_SHARE = 0.25;
const KV_MEMORY_BYTES = 1.5 * 2 ** 30;

/** Where memory has no room for this many slots, more sequences share one pool instead. */
const MIN_SLOTS = 4;

/** Contexts' worth of cells in a unified cache by default. */
const DEFAULT_KV_CONTEXTS = 2;

/** On a CPU: the share of a unified cache that idle prefixes may keep, and their least number. */
const CPU_RETAINED_SHARE = 1 / 64;
const MIN_RETAINED_TOKENS = 256;

/**
 * Chooses the layout and its size; throws `invalid_value` where the wishes contradict each other. A
 * CPU gets slots where they fit, as its attention kernel reads every cell of a sequence's pool or
 * slot, masked ones too. A GPU, a model that cannot share, and a machine without the memory get the
 * unified cache.
 */
export function chooseKvLimits(facts: KvFacts, wishes: KvWishes): KvLimits {
  const { trainedTokens, onCpu, canShare } = facts;
  const asked = Math.min(trainedTokens, wishes.contextTokens ?? DEFAULT_CONTEXT_TOKENS);
  if (wishes.contextTokens !== undefined && (wishes.kvTokens ?? asked) < asked) {
    throw new AppError(
      "invalid_value",
      `kvTokens is ${wishes.kvTokens}, but one request alone may use the ${asked} tokens of ` +
        "contextTokens; raise kvTokens or lower contextTokens",
    );
  }
  const prefersSlots = (onCpu || wishes.needsSlots) && canShare && !wishes.needsPool;
  const slots = prefersSlots ? chooseSlots(facts, wishes, asked) : undefined;
  if (slots === undefined && wishes.needsSlots) {
    const why = canShare
      ? `the memory has no room for slots of ${asked} tokens; lower contextTokens or maxSequences`
      : "this model's state cannot be cut at a position, so it is not supported; set it to `request`";
    throw new AppError("invalid_value", `decoding.deterministic: ${why}`);
  }
  return slots ?? unified(facts, wishes, asked);
}

function chooseSlots(
  { bytesPerToken, freeBytes }: KvFacts,
  { kvTokens, maxSequences, needsSlots }: KvWishes,
  contextTokens: number,
): KvLimits | undefined {
  const slotTokens = padded(contextTokens);
  const memory = Math.min(freeBytes * KV_MEMORY_SHARE, KV_MEMORY_BYTES);
  const room = Math.floor((kvTokens ?? memory / bytesPerToken) / slotTokens);
  const slots = maxSequences ?? Math.min(DEFAULT_MAX_SEQUENCES, room);
  const fewest = maxSequences ?? (needsSlots ? 1 : MIN_SLOTS);
  if (slots > room || slots < Math.min(MIN_SLOTS, fewest)) return undefined;
  const total = slots * slotTokens;
  return {
    layout: "slots",
    contextTokens,
    kvTokens: total,
    maxSequences: slots,
    retainedTokens: total,
  };
}

function unified(facts: KvFacts, wishes: KvWishes, ownContext: number): KvLimits {
  const affordable = Math.floor((facts.freeBytes * KV_MEMORY_SHARE) / facts.bytesPerToken);
  const wanted = wishes.kvTokens ?? Math.min(ownContext * DEFAULT_KV_CONTEXTS, affordable);
  const needed = wishes.contextTokens === undefined ? KV_PADDING : ownContext;
  const kvTokens = padded(Math.max(wanted, needed));
  const onCpu = Math.max(MIN_RETAINED_TOKENS, Math.floor(kvTokens * CPU_RETAINED_SHARE));
  return {
    layout: "unified",
    contextTokens: Math.min(ownContext, kvTokens),
    kvTokens,
    maxSequences: wishes.maxSequences ?? DEFAULT_MAX_SEQUENCES,
    retainedTokens: facts.onCpu ? onCpu : kvTokens,
  };
}

function padded(tokens: number): number {
  return Math.ceil(tokens / KV_PADDING) * KV_PADDING;
}
