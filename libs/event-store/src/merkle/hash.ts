import { hash } from "node:crypto";
import { hashLeaves } from "@heddle/kernels/tree-hash";
import { HASH_BYTES } from "./sibling-sides.ts";

// Hashes of RFC 6962, section 2.1, with SHA-256.

/** One character a byte. */
const TEXT = "binary";

/** The root of a tree without leaves. */
export const EMPTY_ROOT: Uint8Array = hash("sha256", new Uint8Array(0), "buffer");

const LEAF_PREFIX = 0;
const NODE_PREFIX = 1;

/** Fewer are hashed one by one: the kernels take as long for one leaf as for four. */
const MIN_TOGETHER = 3;
/** Node hashes entries of at least this size faster: its calls cost more, but its bytes less. */
const ALONE_BYTES = 512;
/** Longer leaves get a buffer of their own. */
const SCRATCH_BYTES = 4_096;
const scratch = Buffer.alloc(SCRATCH_BYTES);
scratch[0] = LEAF_PREFIX;
const node = Buffer.alloc(1 + 2 * HASH_BYTES, NODE_PREFIX);

export function leafHash(entry: Uint8Array): Uint8Array {
  return Buffer.from(digestOf(leafBytes(entry)), TEXT);
}

/** Writes the hashes of leaves behind each other into a buffer. */
export function writeLeafHashes(entries: readonly Uint8Array[], target: Buffer, at: number): void {
  for (let next = 0; next < entries.length; ) {
    let end = next;
    while (end < entries.length && (entries[end] as Uint8Array).byteLength < ALONE_BYTES) end++;
    if (end - next >= MIN_TOGETHER) {
      hashLeaves(entries.slice(next, end), target, at + next * HASH_BYTES);
      next = end;
    } else {
      const text = digestOf(leafBytes(entries[next] as Uint8Array));
      target.write(text, at + next * HASH_BYTES, TEXT);
      next++;
    }
  }
}

export function nodeHash(left: Uint8Array, right: Uint8Array): Uint8Array {
  node.set(left, 1);
  node.set(right, 1 + HASH_BYTES);
  return Buffer.from(digestOf(node), TEXT);
}

export function sameHash(one: Uint8Array, other: Uint8Array): boolean {
  return Buffer.compare(one, other) === 0;
}

function leafBytes(entry: Uint8Array): Uint8Array {
  const size = 1 + entry.byteLength;
  const bytes = size <= SCRATCH_BYTES ? scratch.subarray(0, size) : Buffer.alloc(size);
  bytes.set(entry, 1);
  return bytes;
}

/** SHA-256 as a text of its bytes, which Node gives in less than half of the time of a buffer. */
function digestOf(bytes: Uint8Array): string {
  return hash("sha256", bytes, TEXT);
}
