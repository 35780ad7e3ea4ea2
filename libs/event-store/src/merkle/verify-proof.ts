import { EMPTY_ROOT, HASH_BYTES, nodeHash, sameHash } from "./hash.ts";

// Verification by RFC 9162, sections 2.1.3.2 and 2.1.4.2. Sizes reach 2^53, so no bit operators.

/** A tree's number of leaves, and its hash. */
export interface TreeHead {
  readonly size: number;
  readonly root: Uint8Array;
}

/** Longer proofs belong to no tree that a number can count. */
export const MAX_PROOF_HASHES = 64;

/** Whether the proof shows that the leaf with that hash is in the tree at that index. */
export function isIncluded(
  leaf: Uint8Array,
  index: number,
  { size, root }: TreeHead,
  proof: readonly Uint8Array[],
): boolean {
  if (!isCount(index) || !isCount(size) || index >= size || !isProof(proof)) return false;
  let hash = leaf;
  let node = index;
  let last = size - 1;
  for (const sibling of proof) {
    if (last === 0) return false;
    if (node % 2 === 1 || node === last) {
      hash = nodeHash(sibling, hash);
      [node, last] = aboveLeftEdge(node, last);
    } else {
      hash = nodeHash(hash, sibling);
    }
    node = half(node);
    last = half(last);
  }
  return last === 0 && sameHash(hash, root);
}

/** Whether the proof shows that the old tree is a prefix of the new one. */
export function isConsistent(from: TreeHead, to: TreeHead, proof: readonly Uint8Array[]): boolean {
  if (!isCount(from.size) || !isCount(to.size) || from.size > to.size) return false;
  if (!isProof(proof)) return false;
  if (from.size === 0) return proof.length === 0 && sameHash(from.root, EMPTY_ROOT);
  if (from.size === to.size) return proof.length === 0 && sameHash(from.root, to.root);
  const path = isPowerOfTwo(from.size) ? [from.root, ...proof] : [...proof];
  const seed = path.shift();
  if (!seed || path.length === 0) return false;
  let [oldRoot, newRoot] = [seed, seed];
  let [node, last] = [from.size - 1, to.size - 1];
  while (node % 2 === 1) [node, last] = [half(node), half(last)];
  for (const sibling of path) {
    if (last === 0) return false;
    if (node % 2 === 1 || node === last) {
      oldRoot = nodeHash(sibling, oldRoot);
      newRoot = nodeHash(sibling, newRoot);
      [node, last] = aboveLeftEdge(node, last);
    } else {
      newRoot = nodeHash(newRoot, sibling);
    }
    node = half(node);
    last = half(last);
  }
  return last === 0 && sameHash(oldRoot, from.root) && sameHash(newRoot, to.root);
}

/** A left edge has no sibling on its right: the levels at which it has none are passed over. */
function aboveLeftEdge(node: number, last: number): [number, number] {
  let [at, end] = [node, last];
  while (at % 2 === 0 && at !== 0) [at, end] = [half(at), half(end)];
  return [at, end];
}

function half(value: number): number {
  return Math.floor(value / 2);
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

function isPowerOfTwo(value: number): boolean {
  let rest = value;
  while (rest % 2 === 0) rest /= 2;
  return rest === 1;
}

function isProof(proof: readonly Uint8Array[]): boolean {
  return proof.length <= MAX_PROOF_HASHES && proof.every((hash) => hash.byteLength === HASH_BYTES);
}
