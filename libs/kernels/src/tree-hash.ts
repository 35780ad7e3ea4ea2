import { TREE_HASH_MODULE } from "./generated/tree-hash-module.ts";
import { instantiate } from "./wasm-module.ts";

/** What assembly/tree-hash.ts exports. */
interface TreeHashModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly TABLE: { readonly value: number };
  readonly MESSAGES: { readonly value: number };
  readonly HASHES: { readonly value: number };
  hashMessages(count: number): void;
  completeRoot(count: number): void;
}

// The same as in assembly/tree-hash.ts.
const MAX_MESSAGES = 1_024;
const MAX_BYTES = 262_144;
const HASH_BYTES = 32;
const BLOCK_BYTES = 64;
const LEAF_PREFIX = 0;

const module = instantiate<TreeHashModule>(TREE_HASH_MODULE, {});
const bytes = new Uint8Array(module.memory.buffer);
const table = new Uint32Array(module.memory.buffer, module.TABLE.value, 2 * MAX_MESSAGES);
const messages = module.MESSAGES.value;
const hashes = module.HASHES.value;

/**
 * Writes the RFC 6962 hashes of leaves behind each other, four computed at a time. A leaf has at most
 * 65,535 bytes.
 */
export function hashLeaves(leaves: readonly Uint8Array[], target: Uint8Array, at: number): void {
  for (let done = 0; done < leaves.length; ) {
    const count = placeLeaves(leaves, done);
    module.hashMessages(count);
    target.set(bytes.subarray(hashes, hashes + count * HASH_BYTES), at + done * HASH_BYTES);
    done += count;
  }
}

/** Copies as many leaves as there is room for, at least one, and returns how many. */
function placeLeaves(leaves: readonly Uint8Array[], from: number): number {
  let at = messages;
  let count = 0;
  while (from + count < leaves.length && count < MAX_MESSAGES) {
    const leaf = leaves[from + count] as Uint8Array;
    const length = 1 + leaf.byteLength;
    // With a bit that ends it and its length in 8 bytes.
    const padded = Math.ceil((length + 9) / BLOCK_BYTES) * BLOCK_BYTES;
    if (at + padded > messages + MAX_BYTES) break;
    bytes[at] = LEAF_PREFIX;
    bytes.set(leaf, at + 1);
    table[2 * count] = at;
    table[2 * count + 1] = length;
    at += padded;
    count++;
  }
  return count;
}

/** The RFC 6962 root over a power of two of hashes behind each other, at most 1,024. */
export function completeRoot(leaves: Uint8Array): Uint8Array {
  bytes.set(leaves, hashes);
  module.completeRoot(leaves.byteLength / HASH_BYTES);
  return bytes.slice(hashes, hashes + HASH_BYTES);
}
