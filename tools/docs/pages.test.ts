import { expect, test } from "vitest";
import { parseSource } from "../tidy/source-file.ts";
import { generatedPages } from "./pages.ts";

const RESULT = {
  benchmark: "start",
  takenAt: "2026-11-23",
  command: "npm run bench:start",
  machine: { cpu: "A CPU", cores: 2, memoryGiB: 24, node: "v24" },
  load: "nothing else",
  tables: [],
  bars: [{ bar: "first token <= 5 s", measured: "3.5 s", pass: true }],
};
const FILES: Readonly<Record<string, string>> = {
  "docs/promises.yaml": `
- area: Start
  promises:
    start-table: A start prints a table.
    start-fast:
      says: A start is fast.
      check: benchmark
      why: start
`,
  "ARCHITECTURE.md": "# A\n<!-- generated: packages -->\n<!-- end -->\n",
  "libs/looms/package.json":
    '{ "description": "looms", "dependencies": { "@heddle/base": "1", "zod": "4" } }',
  "apps/weaver/package.json": '{ "description": "a process" }',
  "docs/adr/README.md": "# D\n<!-- generated: decisions -->\n<!-- end -->\n",
  "docs/adr/0001-looms.md": "# 1. Looms\n",
  "tools/mutation/scores.json":
    '[{ "package": "looms", "percent": 93, "mutants": 60, "seed": 7, "date": "2026-11-29" }]',
  "docs/glossary.yaml": "Weaving:\n  loom:\n    is: It weaves.\n    file: libs/looms\n",
  "docs/internals/glossary.md": "# G\n<!-- generated: terms -->\n<!-- end -->\n",
  "docs/verification.md":
    "# V\n<!-- generated: mutations -->\n<!-- end -->\n<!-- generated: promises -->\n<!-- end -->\n",
  "docs/benchmarks.md":
    "# B\n<!-- generated: bars -->\n<!-- end -->\n<!-- generated: start -->\n<!-- end -->\n",
  "bench/results/start.json": JSON.stringify(RESULT),
};
const sources = [
  parseSource(
    "apps/cli/src/a.test.ts",
    '// holds: start-table\ntest("start: prints", () => {});\n',
  ),
];
const pagesOf = (change: Readonly<Record<string, string | undefined>> = {}) => {
  const files = { ...FILES, ...change };
  const paths = Object.keys(files).filter((path) => files[path] !== undefined);
  return generatedPages(paths, sources, (path) => files[path] ?? "");
};

test("pages: promises, tests, bars and tables are at their places", () => {
  const pages = pagesOf();
  expect(pages.get("docs/verification.md")).toContain("`apps/cli/src/a.test.ts`: start: prints");
  expect(pages.get("docs/verification.md")).toMatch(
    /\| looms +\| +93 \| +84 \| +97 \| +60 \| +7 \| 2026-11-29 \|/,
  );
  expect(pages.get("docs/benchmarks.md")).toContain("1 of 1 bars are met.");
  expect(pages.get("docs/benchmarks.md")).toContain("| first token <= 5 s |    3.5 s |     met |");
});

test("pages: packages, decisions and terms are at their places", () => {
  const pages = pagesOf();
  expect(pages.get("ARCHITECTURE.md")).toMatch(/\| `looms` \| base +\| looms \|/);
  expect(pages.get("ARCHITECTURE.md")).toMatch(/\| `weaver` \| a process \|/);
  expect(pages.get("docs/adr/README.md")).toContain("- [1. Looms](0001-looms.md)");
  expect(pages.get("docs/internals/glossary.md")).toContain(
    "## Weaving\n\n- **loom**: It weaves. [looms](../../libs/looms)",
  );
});

test("pages: generated text that is there is replaced, not repeated", () => {
  const pages = pagesOf();
  expect(pagesOf(Object.fromEntries(pages))).toEqual(pages);
});

test.each([
  [
    "a promise without a test",
    { "docs/promises.yaml": `${FILES["docs/promises.yaml"]}    start-x: It starts.\n` },
    /start-x: no test/,
  ],
  [
    "a package without a description",
    { "apps/weaver/package.json": "{}" },
    /apps\/weaver\/package.json: a package has/,
  ],
  [
    "a term of a file that does not exist",
    { "libs/looms/package.json": undefined },
    /loom: there is no file libs\/looms/,
  ],
  [
    "a result without a place",
    { "bench/results/other.json": JSON.stringify(RESULT) },
    /generated: other/,
  ],
  [
    "a place without a result",
    { "docs/benchmarks.md": `${FILES["docs/benchmarks.md"]}<!-- generated: x -->\n<!-- end -->\n` },
    /bench\/results\/x.json is missing/,
  ],
  [
    "a benchmark without a result",
    { "bench/results/start.json": undefined },
    /start-fast: no result/,
  ],
])("pages: %s is refused", (_, change, reason) => {
  expect(() => pagesOf(change)).toThrow(reason);
});
