// holds: test-mutations-tool

import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import EXPLAINED from "./explained.json" with { type: "json" };
import SCORES from "./scores.json" with { type: "json" };
import { TARGETS, targetOf } from "./targets.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

test.each(TARGETS)("mutation target $name: its sources and tests exist", ({ name, tests }) => {
  expect(globSync(`${name}/**/*.ts`, { cwd: root })).not.toEqual([]);
  for (const pattern of tests) expect(globSync(pattern, { cwd: root }), pattern).not.toEqual([]);
});

test("mutation targets: an unknown name is refused with all names", () => {
  expect(() => targetOf("libs/none")).toThrow(/"libs\/none": use one of libs\/raft, .*dispatch/);
});

test("mutation targets: each has a score of its latest sample", () => {
  const named = SCORES.map(({ package: name }) =>
    TARGETS.filter((each) => each.name.endsWith(name)),
  );
  expect(named.map((found) => found.length)).toEqual(SCORES.map(() => 1));
  expect(new Set(named.flat())).toEqual(new Set(TARGETS));
});

test("explained mutants: their files still have the code that they replace", () => {
  const textOf = (file: string) => readFileSync(`${root}${file}`, "utf8").replaceAll(/\s+/g, " ");
  expect(EXPLAINED.filter(({ file, code }) => !textOf(file).includes(code))).toEqual([]);
});
