// holds: structure-figures

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { measure, type StructureFigures } from "./structure/figures.ts";
import { structureTable, worseFigures } from "./structure/table.ts";
import { parseSource } from "./tidy/source-file.ts";

const page = readFileSync(join(import.meta.dirname, "../docs/internals/structure.md"), "utf8");
const before = JSON.parse(
  readFileSync(join(import.meta.dirname, "structure/before.json"), "utf8"),
) as StructureFigures;
const rowsOf = (table: string) =>
  table.split("\n").map((row) => row.split("|").map((cell) => cell.trim()));

/** A folder `a` that imports a folder `b`, and one folder that is too large. */
const SAMPLE = [
  parseSource(
    "apps/master/src/a/a.ts",
    'import { b } from "../b/b.ts";\n/** Word for word. */\nexport const a = b;\n',
  ),
  parseSource("apps/master/src/b/b.ts", "export const b = 1;\n"),
  parseSource("apps/master/src/b/c.ts", "export const b = 2;\n"),
  ...Array.from({ length: 21 }, (_, at) => {
    return parseSource(`libs/base/src/${at}.ts`, `export const c${at} = 1;\n`);
  }),
];
const measured = measure(SAMPLE, new Map([["README.md", "# Two words\n"]]));

test("structure: folders, layers, names and words of a tree are counted", () => {
  expect(measured).toMatchObject({
    "Source files in apps and libs": 24,
    "Files of the largest folder": 21,
    "Folders of more than 20 source files": 1,
    "Top folders of apps/master": 2,
    "Imports between top folders of apps/master": 1,
    "Layers of apps/master": 2,
    "Names that two files export": 1,
    "Hand-written words of README, ARCHITECTURE, docs": 2,
  });
});

test("structure: the page has every figure, and those of the earlier tree", () => {
  const rows = rowsOf(page);
  for (const [, name, recorded] of rowsOf(structureTable(before, measured)).slice(2)) {
    const row = rows.find((cells) => cells[1] === name);
    expect(row?.[2], name).toBe(recorded);
  }
});

test("structure: a figure that grew is named, a size that grew is not", () => {
  const table = structureTable(before, measured);
  expect(worseFigures(table, measured)).toEqual([]);
  const worse = {
    ...measured,
    "Folders of more than 20 source files": 2,
    "Source files in apps and libs": 99,
  };
  expect(worseFigures(table, worse)).toEqual([
    "Folders of more than 20 source files: 2, and the page says 1",
  ]);
});
