import { EMPTY_ROOT, nodeHash, sameHash } from "./hash.ts";
import {
  aboveLeftEdge,
  HASH_BYTES,
  half,
  MAX_PROOF_HASHES,
  siblingSides,
} from "./sibling-sides.ts";

// Verification by RFC 9162, sections 2.1.3.2 and 2.1.4.2.

/** A tree's number of leaves, and its hash. */
export interface TreeHead {
  readonly size: number;
  readonly root: Uint8Array;
}

/** Whether the proof shows that the leaf with that hash is in the tree at that index. */
export function isIncluded(
  leaf: Uint8Array,
  index: number,
  { size, root }: TreeHead,
  proof: readonly Uint8Array[],
): boolean {
  if (!isCount(index) || !isCount(size) || index >= size || !isProof(proof)) return false;
  const sides = siblingSides(index, size);
  if (sides.length !== proof.length) return false;
  const folded = proof.reduce(
    (hash, sibling, at) =>
      sides[at] === "left" ? nodeHash(sibling, hash) : nodeHash(hash, sibling),
    leaf,
  );
  return sameHash(folded, root);
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
