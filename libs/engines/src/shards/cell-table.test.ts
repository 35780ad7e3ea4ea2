// holds: shard-moves

import fc from "fast-check";
import { expect, test } from "vitest";
import { CellTable } from "./cell-table.ts";

const LENGTH = 12;
const id = fc.nat(4);
const position = fc.nat(LENGTH);
const change = fc.oneof(
  fc.record({ kind: fc.constant("add" as const), id, at: position }),
  fc.record({ kind: fc.constant("copy" as const), id, to: id, at: position, end: position }),
  fc.record({
    kind: fc.constant("remove" as const),
    id,
    at: fc.integer({ min: -1, max: LENGTH }),
    end: fc.integer({ min: -1, max: LENGTH }),
  }),
);

/** The cells as the library has them: each with its position and sequences. */
class Cells {
  cells: { at: number; ids: Set<number> }[] = [];

  held(of: number, begin: number, end: number) {
    const until = end < 0 ? Number.POSITIVE_INFINITY : end;
    return this.cells.filter(({ at, ids }) => ids.has(of) && at >= begin && at < until);
  }
}

test("cell table: it has each cell once, and says who shares it", () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 60 }), (changes) => {
      const [table, cells] = [new CellTable(), new Cells()];
      for (const each of changes) {
        if (each.kind === "add") {
          // A decode has no row of a position that the sequence has.
          if (cells.held(each.id, each.at, each.at + 1).length > 0) continue;
          table.add(each.id, each.at);
          cells.cells.push({ at: each.at, ids: new Set([each.id]) });
        } else if (each.kind === "remove") {
          table.remove(each.id, each.at, each.end);
          for (const { ids } of cells.held(each.id, each.at, each.end)) ids.delete(each.id);
        } else {
          // Nothing is copied over what the sequence has.
          if (cells.held(each.to, each.at, each.end).length > 0) continue;
          table.copy(each.id, each.to, each.at, each.end);
          if (each.end > each.at)
            for (const { ids } of cells.held(each.id, each.at, each.end)) ids.add(each.to);
        }
      }
      const rebuilt = new Map<string, string[]>();
      for (const { sequence, own, shared } of table.sequences()) {
        for (const { begin, end } of own) {
          for (let at = begin; at < end; at++) rebuilt.set(`${sequence} ${at}`, [`${sequence}`]);
        }
        for (const { begin, end, owner } of shared) {
          for (let at = begin; at < end; at++) rebuilt.get(`${owner} ${at}`)!.push(`${sequence}`);
        }
      }
      const found = [...rebuilt].map(([key, ids]) => `${key.split(" ")[1]}: ${ids.toSorted()}`);
      const expected = cells.cells
        .filter(({ ids }) => ids.size > 0)
        .map(({ at, ids }) => `${at}: ${[...ids].map(String).toSorted()}`);
      expect(found.toSorted()).toEqual(expected.toSorted());
    }),
  );
});
