import type { KvSequences } from "../llama/kv-cache/prefix-tree.ts";

const NONE = -1;

/** Positions of a sequence: from the first to before the other. */
export interface CellRange {
  readonly begin: number;
  readonly end: number;
}

/** The cells of a sequence: its own, and those that it shares with sequences before it. */
export interface SequenceCells {
  readonly sequence: number;
  readonly own: readonly CellRange[];
  readonly shared: readonly (CellRange & { readonly owner: number })[];
}

/**
 * Which sequences of a cache have the same cells, which the library does not say. It is to see every
 * change and every row that is decoded.
 */
export class CellTable implements KvSequences {
  /** Keyed by sequence, then position: the number of the cell. */
  readonly #cells = new Map<number, number[]>();
  #next = 0;

  add(sequence: number, position: number): void {
    this.#set(sequence, position, this.#next++);
  }

  copy(from: number, to: number, begin: number, end: number): void {
    const cells = this.#cells.get(from) ?? [];
    for (let at = begin; at < Math.min(end, cells.length); at++) {
      const cell = cells[at] ?? NONE;
      if (cell !== NONE) this.#set(to, at, cell);
    }
  }

  /** Below 0 a bound is open. */
  remove(sequence: number, begin: number, end: number): void {
    const cells = this.#cells.get(sequence);
    if (!cells) return;
    const from = Math.max(0, begin);
    if (end < 0 || end >= cells.length) cells.length = Math.min(cells.length, from);
    else cells.fill(NONE, from, end);
    if (cells.length === 0) this.#cells.delete(sequence);
  }

  clear(): void {
    this.#cells.clear();
  }

  /** The last ones first; every cell is the own one of the first of these that has it. */
  sequences(): SequenceCells[] {
    const owners = new Map<number, number>();
    const sorted = [...this.#cells].toSorted(([a], [b]) => b - a);
    return sorted.map(([sequence, cells]) => {
      const own: CellRange[] = [];
      const shared: (CellRange & { owner: number })[] = [];
      for (let begin = 0, end = 1; begin < cells.length; begin = end, end++) {
        const ownerAt = (at: number) => (cells[at] === NONE ? NONE : owners.get(cells[at] ?? NONE));
        const owner = ownerAt(begin);
        while (end < cells.length && ownerAt(end) === owner) end++;
        if (owner === undefined) own.push({ begin, end });
        else if (owner !== NONE) shared.push({ begin, end, owner });
      }
      for (const cell of cells) if (!owners.has(cell)) owners.set(cell, sequence);
      return { sequence, own, shared };
    });
  }

  #set(sequence: number, position: number, cell: number): void {
    const cells = this.#cells.get(sequence) ?? [];
    this.#cells.set(sequence, cells);
    while (cells.length < position) cells.push(NONE);
    cells[position] = cell;
  }
}
