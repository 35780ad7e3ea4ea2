import { expect, test } from "vitest";
import { parseSource } from "../tidy/source-file.ts";
import { replaceGenerated } from "./generated-region.ts";
import { type HoldsTag, holdsTags } from "./holds-tags.ts";
import { parsePromises } from "./promises.ts";
import { verificationFaults, verificationTable } from "./verification-page.ts";

const PROMISES = `
- area: Log
  promises:
    log-sync: The log is synced.
    log-speed:
      says: The log is fast.
      check: benchmark
      why: consensus
    log-moon:
      says: The log works on the moon.
      check: no test
      why: No rocket.
  limits:
    - Logs are finite.
`;
const areas = parsePromises(PROMISES);
const tagsIn = (text: string) => holdsTags(parseSource("libs/a/src/a.test.ts", text));
const tag = (ids: string[], path = "libs/a/src/a.test.ts", title = "log: syncs"): HoldsTag => ({
  path,
  line: 3,
  ids,
  title,
});

test("promises: a well-formed file is read with its limits", () => {
  expect(areas).toMatchObject([{ area: "Log", limits: ["Logs are finite."] }]);
  expect(Object.keys(areas[0]?.promises ?? {})).toEqual(["log-sync", "log-speed", "log-moon"]);
});

test.each([
  ["a small first letter", "The log is synced.", "the log is synced.", /no small letter/],
  ["no full stop", "The log is synced.", "The log is synced", /full stop/],
  ["21 words", "The log is synced.", `${"W ".repeat(20)}w.`, /at most 20 words/],
  ["an unknown check", "check: no test", "check: maybe", /log-moon/],
  ["a benchmark without a name", "      why: consensus\n", "", /`why` names the benchmark/],
  ["an id with capitals", "log-sync:", "logSync:", /lower case with hyphens/],
  ["an unknown field", "why: No rocket.", "because: No rocket.", /because/],
])("promises: %s is refused", (_, good, bad, reason) => {
  const text = PROMISES.replace(good, bad);
  expect(text).not.toBe(PROMISES);
  expect(() => parsePromises(text)).toThrow(reason);
});

test("promises: an id of two areas is refused", () => {
  const twice = `${PROMISES}- area: Disk\n  promises:\n    log-sync: The disk is synced.\n`;
  expect(() => parsePromises(twice)).toThrow("two areas have a promise log-sync");
});

test("tags: name a test with its describe blocks, over comments and tables", () => {
  const text = `
import { it } from "vitest";
describe("the log", () => {
  // holds: log-sync, log-speed
  // A comment between.
  it.each([1, 2])("syncs %i", () => {});
  it("is not tagged", () => {});
  // holds: log-moon
  it(\`works for \${1 + 1} seeds\`, () => {});
});
// holds: log-sync
describe("a block", () => {});
`;
  expect(tagsIn(text)).toMatchObject([
    { line: 4, ids: ["log-sync", "log-speed"], title: "the log syncs %i" },
    {
      line: 8,
      ids: ["log-moon"],
      title: expect.stringMatching(/^the log works for .*1 \+ 1.* seeds$/),
    },
    { line: 11, ids: ["log-sync"], title: "a block" },
  ]);
});

test("tags: one above the imports names the whole file", () => {
  const tags = tagsIn('// holds: log-sync\n\nimport "vitest";\ntest("a", () => {});\n');
  expect(tags).toEqual([
    { path: "libs/a/src/a.test.ts", line: 1, ids: ["log-sync"], title: undefined },
  ]);
});

test("tags: one above no test is refused with its place", () => {
  const text = 'import "vitest";\n// holds: log-sync\nconst a = 1;\ntest("a", () => {});\n';
  expect(() => tagsIn(text)).toThrow("libs/a/src/a.test.ts:2: the tag stands above no titled test");
});

test("faults: none where tests and reasons fit the promises", () => {
  expect(verificationFaults(areas, [tag(["log-sync"])])).toEqual([]);
});

test.each([
  ["a promise without test and reason", [], /^log-sync: no test has the tag/],
  ["a reason beside a test", [tag(["log-sync", "log-moon"])], /^log-moon: a test holds it now/],
  ["a tag of no promise", [tag(["log-sync", "log-x"])], /^libs\/a.*:3: "log-x" is not a promise/],
  ["a promise twice in a tag", [tag(["log-sync", "log-sync"])], /"log-sync" .* stands twice/],
])("faults: %s", (_, tags, fault) => {
  expect(verificationFaults(areas, tags)).toEqual([expect.stringMatching(fault)]);
});

test("page: tests in order of files, other checks, limits, and what is not checked", () => {
  const tags = [
    tag(["log-sync"], "libs/b/src/b.test.ts", "keeps `a_b`, a_b and `"),
    tag(["log-sync"]),
  ];
  expect(verificationTable(areas, tags)).toBe(
    [
      "3 promises: 1 held by tests, 1 by benchmarks, 0 tried by hand, 1 without a test, 0 not built.\n",
      "### Log\n",
      "- The log is synced.",
      "  - `libs/a/src/a.test.ts`: log: syncs",
      "  - `libs/b/src/b.test.ts`: keeps `a_b`, a\\_b and \\`",
      "- The log is fast.",
      "  - Measured by `npm run bench:consensus`, see [benchmarks](benchmarks.md).",
      "- Known limits:",
      "  - Logs are finite.\n",
      "## What is not checked\n",
      "### Not checked: Log\n",
      "- The log works on the moon. No test. No rocket.",
    ].join("\n"),
  );
});

test("region: is replaced between its marks; a page without them is refused", () => {
  const page = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n";
  expect(replaceGenerated(page, "x", "new")).toBe(
    "a\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nb\n",
  );
  expect(() => replaceGenerated(page, "y", "new")).toThrow("<!-- generated: y -->");
});
