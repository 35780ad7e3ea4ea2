import type { EngineInput } from "@heddle/contracts/engine";

/** Units (UTF-16 code units of text, or token ids) per chunk. */
const chunkUnits = { text: 64, tokens: 16 };
/** Maximum chunks of a prompt that are indexed: 64k characters or 16k tokens. */
const MAX_CHUNKS = 1_024;
/** Replicas kept per chunk, the most recent ones. */
const MAX_HOLDERS_PER_CHUNK = 8;

/**
 * Which replicas have recently served which prefix: an approximate radix tree, kept flat. A chunk's
 * key is the hash of the whole prefix up to its end, so a path is a run of keys without pointers.
 * Bounded by `maxEntries` with LRU eviction; within a path the deepest chunk goes first.
 */
export class PrefixIndex {
  readonly #maxEntries: number;
  readonly #holders = new Map<number, string[]>();

  constructor(maxEntries: number) {
    this.#maxEntries = maxEntries;
  }

  get size(): number {
    return this.#holders.size;
  }

  /**
   * For each replica, how many leading chunks of the prompt it has served; replicas with none are absent.
   */
  match(chunks: readonly number[]): Map<string, number> {
    const depths = new Map<string, number>();
    for (const [index, chunk] of chunks.entries()) {
      let advanced = false;
      for (const holder of this.#holders.get(chunk) ?? []) {
        if ((depths.get(holder) ?? 0) !== index) continue;
        depths.set(holder, index + 1);
        advanced = true;
      }
      if (!advanced) break;
    }
    return depths;
  }

  /** The replica now holds every prefix of the prompt. */
  remember(chunks: readonly number[], holder: string): void {
    for (const chunk of chunks.toReversed()) {
      const holders = this.#holders.get(chunk) ?? [];
      this.#holders.delete(chunk);
      const others = holders.filter((other) => other !== holder);
      this.#holders.set(chunk, [holder, ...others.slice(0, MAX_HOLDERS_PER_CHUNK - 1)]);
    }
    for (const oldest of this.#holders.keys()) {
      if (this.#holders.size <= this.#maxEntries) break;
      this.#holders.delete(oldest);
    }
  }
}

/** The keys of the prompt's complete chunks: equal prefixes of a salt give equal runs of keys. */
export function promptChunks(input: EngineInput, salt = ""): number[] {
  switch (input.kind) {
    case "tokens":
      return chain(
        input.tokens.length,
        (index) => input.tokens[index] ?? 0,
        chunkUnits.tokens,
        salt,
      );
    case "text":
      return chain(
        input.text.length,
        (index) => input.text.charCodeAt(index),
        chunkUnits.text,
        salt,
      );
    case "chat": {
      const text = input.messages
        .map(({ role, content, name, toolCalls, toolCallId }) =>
          JSON.stringify([role, name, content, toolCalls, toolCallId]),
        )
        .join("");
      return chain(text.length, (index) => text.charCodeAt(index), chunkUnits.text, salt);
    }
    default:
      input satisfies never;
      throw new TypeError("an input has no known kind");
  }
}

/**
 * Two 32-bit multiplicative hashes run over the units; 53 bits of them form a key at each chunk's
 * end. A collision only routes a request to a less suitable replica.
 */
function chain(
  length: number,
  unit: (index: number) => number,
  size: number,
  salt: string,
): number[] {
  const chunks: number[] = [];
  const end = Math.min(length - (length % size), size * MAX_CHUNKS);
  let high = 0x9e3779b9;
  let low = 0x85ebca6b;
  const mix = (value: number): void => {
    high = Math.imul(high ^ value, 0x01000193);
    low = Math.imul((low << 5) ^ (low >>> 27) ^ value, 0x2c1b3c6d);
  };
  for (let index = 0; index < salt.length; index += 1) mix(salt.charCodeAt(index));
  for (let index = 0; index < end; index += 1) {
    mix(unit(index));
    if ((index + 1) % size === 0) chunks.push((high >>> 0) * 2 ** 21 + (low >>> 11));
  }
  return chunks;
}
