import { hash } from "node:crypto";

// Hashes of RFC 6962, section 2.1, with SHA-256.

export const HASH_BYTES = 32;

/** The root of a tree without leaves. */
export const EMPTY_ROOT: Uint8Array = sha256(new Uint8Array(0));

const LEAF_PREFIX = 0;
const NODE_PREFIX = 1;

/** Longer leaves get a buffer of their own. */
const SCRATCH_BYTES = 4_096;
const scratch = Buffer.alloc(SCRATCH_BYTES);
scratch[0] = LEAF_PREFIX;
const node = Buffer.alloc(1 + 2 * HASH_BYTES, NODE_PREFIX);

export function leafHash(entry: Uint8Array): Uint8Array {
  const size = 1 + entry.byteLength;
  const bytes = size <= SCRATCH_BYTES ? scratch.subarray(0, size) : Buffer.alloc(size);
  bytes.set(entry, 1);
  return sha256(bytes);
}

export function nodeHash(left: Uint8Array, right: Uint8Array): Uint8Array {
  node.set(left, 1);
  node.set(right, 1 + HASH_BYTES);
  return sha256(node);
}

export function sameHash(one: Uint8Array, other: Uint8Array): boolean {
  return Buffer.compare(one, other) === 0;
}

/** By way of a text, as Node gives that in less than half of the time of a buffer. */
function sha256(bytes: Uint8Array): Uint8Array {
  return Buffer.from(hash("sha256", bytes, "binary"), "binary");
}
