import { expect } from "vitest";
import type { KvSequences } from "../kv-cache/prefix-tree.ts";
import type { NativeCells } from "./test-kv-cache.ts";

/** For tests: the cells of a unified KV cache, by who may see them. */
export class UnifiedCells implements KvSequences, NativeCells {
  /** Each cell: its position, its token and the sequences that see it. */
  #cells: { position: number; token: number; sequences: Set<number> }[] = [];

  compute(sequence: number, position: number, token: number): void {
    this.#cells.push({ position, token, sequences: new Set([sequence]) });
  }

  copy(from: number, to: number, start: number, end: number): void {
    for (const cell of this.#cells) {
      if (cell.position >= start && cell.position < end && cell.sequences.has(from)) {
        cell.sequences.add(to);
      }
    }
  }

  remove(sequence: number, start: number, end: number): void {
    for (const cell of this.#cells) {
      const inside = cell.position >= start && (end < 0 || cell.position < end);
      if (inside) cell.sequences.delete(sequence);
    }
    this.#cells = this.#cells.filter((cell) => cell.sequences.size > 0);
  }

  get used(): number {
    return this.#cells.length;
  }

  tokensOf(sequence: number): number[] {
    const own = this.#cells.filter((cell) => cell.sequences.has(sequence));
    own.sort((a, b) => a.position - b.position);
    own.forEach((cell, i) => {
      expect(cell.position, "a sequence has each position once, without gaps").toBe(i);
    });
    return own.map((cell) => cell.token);
  }
}
