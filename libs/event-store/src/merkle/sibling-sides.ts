// The form of inclusion proofs, without hashes: browsers have other ones. Sizes reach 2^53, so no bit operators.

export const HASH_BYTES = 32;
/** Longer proofs belong to no tree that a number can count. */
export const MAX_PROOF_HASHES = 64;

/** For each hash of a leaf's inclusion proof, from the leaf up, on which side of the path it is. */
export function siblingSides(index: number, size: number): readonly ("left" | "right")[] {
  const sides: ("left" | "right")[] = [];
  let [node, last] = [index, size - 1];
  while (last > 0) {
    if (node % 2 === 1 || node === last) {
      sides.push("left");
      [node, last] = aboveLeftEdge(node, last);
    } else {
      sides.push("right");
    }
    [node, last] = [half(node), half(last)];
  }
  return sides;
}

/** A left edge has no sibling on its right: the levels at which it has none are passed over. */
export function aboveLeftEdge(node: number, last: number): [number, number] {
  let [at, end] = [node, last];
  while (at % 2 === 0 && at !== 0) [at, end] = [half(at), half(end)];
  return [at, end];
}

export function half(value: number): number {
  return Math.floor(value / 2);
}
