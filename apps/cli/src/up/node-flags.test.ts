import { execFileSync } from "node:child_process";
import { totalmem } from "node:os";
import { expect, it } from "vitest";
import { nodeFlags } from "./node-flags.ts";

it("node flags: the young generation has its size, the old one its bound", () => {
  const script =
    "console.log(JSON.stringify([...require('v8').getHeapSpaceStatistics().filter((s) => s.space_name === 'new_space').map((s) => s.space_size), require('v8').getHeapStatistics().heap_size_limit]))";
  const bounds = [8, 12].map((gibibytes) => {
    const flags = nodeFlags("master", gibibytes * 2 ** 30);
    const [newSpace, limit] = JSON.parse(
      execFileSync(process.execPath, [...flags, "-e", script], { encoding: "utf8" }),
    ) as [number, number];
    expect(newSpace).toBeGreaterThanOrEqual(16 * 2 ** 20);
    expect(newSpace).toBeLessThanOrEqual(32 * 2 ** 20);
    return limit;
  });
  expect((bounds[1] ?? 0) - (bounds[0] ?? 0)).toBe(2 ** 29);
});

it.each([
  [2 ** 30, 256],
  [8 * 2 ** 30, 1_024],
  [512 * 2 ** 30, 2_000],
])("bound the old generation by the machine's memory: %d bytes give %d MiB", (memory, bound) => {
  expect(nodeFlags("worker", memory)).toContain(`--max-old-space-size=${bound}`);
  expect(nodeFlags("worker", totalmem())).toContain("--enable-source-maps");
});
