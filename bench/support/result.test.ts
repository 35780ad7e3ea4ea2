import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { benchResultSchema, writeReport } from "./result.ts";
import { atLeast, printTable, printVerdicts } from "./table.ts";

test("result: keeps what was printed, with the machine and the command", () => {
  vi.spyOn(console, "log").mockReturnValue(undefined);
  const folder = mkdtempSync(join(tmpdir(), "heddle-result-"));
  const file = join(folder, "deep/result.json");
  expect(() => writeReport({ json: file }, "sample", {})).toThrow("a result has figures");
  printTable("Rates, calls/s", ["load", "ours", "peer"], [["1 at once", 12_345.678, Number.NaN]]);
  printVerdicts([atLeast("rate", 4.5, 4, "x"), atLeast("rate of 64", 3, 4, "x")]);
  writeReport({ json: file }, "sample", { raw: [1, 2] });
  const { figures, ...result } = JSON.parse(readFileSync(file, "utf8"));
  rmSync(folder, { recursive: true });
  expect(figures).toEqual({ raw: [1, 2] });
  expect(benchResultSchema.parse(result)).toMatchObject({
    benchmark: "sample",
    command: expect.stringMatching(/^npm run bench:sample/),
    machine: { node: process.version, cores: expect.any(Number) },
    tables: [{ columns: ["load", "ours", "peer"], rows: [["1 at once", 12_345.678, "n/a"]] }],
    bars: [
      { bar: "rate >= 4x", measured: "4.50x", pass: true },
      { bar: "rate of 64 >= 4x", measured: "3x", pass: false },
    ],
  });
});
