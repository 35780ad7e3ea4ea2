// How RFC 6962 divides the leaves of a tree. Ranges are half open.

/** Leaves `begin` to `end`. */
export interface LeafRange {
  readonly begin: number;
  readonly end: number;
}

/** A complete subtree: the leaves `index * 2^height` to `(index + 1) * 2^height`. */
export interface Subtree {
  readonly height: number;
  readonly index: number;
}

/** The fewest complete subtrees that together are the range, from left to right. */
export function subtreesOf({ begin, end }: LeafRange): Subtree[] {
  const found: Subtree[] = [];
  for (let at = begin; at < end; ) {
    let height = 0;
    while (at % 2 ** (height + 1) === 0 && at + 2 ** (height + 1) <= end) height++;
    found.push({ height, index: at / 2 ** height });
    at += 2 ** height;
  }
  return found;
}

/** The ranges whose roots prove that a leaf is in a tree, from the leaf's sibling up. */
export function inclusionRanges(index: number, size: number): LeafRange[] {
  const ranges: LeafRange[] = [];
  let [begin, end] = [0, size];
  while (end - begin > 1) {
    const split = begin + splitOf(end - begin);
    if (index < split) {
      ranges.push({ begin: split, end });
      end = split;
    } else {
      ranges.push({ begin, end: split });
      begin = split;
    }
  }
  return ranges.reverse();
}

/** The ranges whose roots prove that a tree of `from` leaves is a prefix of one of `to`. */
export function consistencyRanges(from: number, to: number): LeafRange[] {
  if (from === 0 || from === to) return [];
  const ranges: LeafRange[] = [];
  let [begin, end] = [0, to];
  while (from !== end) {
    const split = begin + splitOf(end - begin);
    if (from <= split) {
      ranges.push({ begin: split, end });
      end = split;
    } else {
      ranges.push({ begin, end: split });
      begin = split;
    }
  }
  // The verifier has the root of the old tree, so it is only named where it is one part of several.
  if (begin > 0) ranges.push({ begin, end });
  return ranges.reverse();
}

/** The largest power of two below the number of leaves. */
function splitOf(leaves: number): number {
  let split = 1;
  while (split * 2 < leaves) split *= 2;
  return split;
}
