// holds: test-mutations-tool

import { globSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { TARGETS, targetOf } from "./targets.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

test.each(TARGETS)("mutation target $name: its sources and tests exist", ({ name, tests }) => {
  expect(globSync(`${name}/**/*.ts`, { cwd: root })).not.toEqual([]);
  for (const pattern of tests) expect(globSync(pattern, { cwd: root }), pattern).not.toEqual([]);
});

test("mutation targets: an unknown name is refused with all names", () => {
  expect(() => targetOf("libs/none")).toThrow(/"libs\/none": use one of libs\/raft, .*dispatch/);
});
