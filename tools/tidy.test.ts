// holds: test-tidy

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { generatedPages } from "./docs/pages.ts";
import { handMadeChain, handMadeFlush, handMadeRetry, optionBag } from "./tidy/design-rules.ts";
import {
  longGuidePage,
  MAX_DOCUMENT_WORDS,
  readerless,
  tooManyWords,
  wideLines,
} from "./tidy/document-rules.ts";
import {
  cycles,
  deadExports,
  folderCycles,
  folderSize,
  layering,
  needlessExceptions,
  purity,
} from "./tidy/graph-rules.ts";
import {
  longSentences,
  longTitles,
  MESSAGE_PHRASES,
  namesIn,
  privateMessages,
  privateNames,
  privatePagePhrases,
  privatePhrases,
  sharedNames,
  subjectless,
  unknownNames,
} from "./tidy/language-rules.ts";
import { brokenLinks, unknownFiles } from "./tidy/link-rules.ts";
import {
  constantCase,
  constructorSize,
  domainNames,
  type FileRule,
  fileName,
  fileSize,
  forbiddenWords,
  functionSize,
  literalSpread,
  noBarrel,
  noSingleConstant,
} from "./tidy/shape-rules.ts";
import {
  parseProto,
  parseSource,
  readProtos,
  readSources,
  repositoryFiles,
} from "./tidy/source-file.ts";
import { awaitedApart, shortTimeout } from "./tidy/test-rules.ts";

// The style of this repository, held by a test (after TigerBeetle's tidy.zig). Each rule is first
// shown to find what it is for, so that a rule that went blind fails here.

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const paths = repositoryFiles(root);
const sources = readSources(root, paths);
const protos = readProtos(root, paths);
const bag = (name: string, fields: number) =>
  `interface ${name} { ${Array.from({ length: fields }, (_, at) => `f${at}: number;`).join(" ")} }\n`;
const lines = (count: number, text = "f();") => `${`${text}\n`.repeat(count)}`;

interface Sample {
  readonly rule: FileRule;
  readonly title: string;
  readonly path?: string;
  readonly bad: string;
  readonly good: string;
  readonly goodPath?: string;
}

const SHAPE_RULES: readonly Sample[] = [
  {
    rule: fileSize,
    title: "a source file has at most 500 lines",
    bad: lines(501),
    good: lines(500),
  },
  {
    rule: functionSize,
    title: "a function has at most 60 lines",
    bad: `const f = () => {\n${lines(60)}};\n`,
    good: `const f = () => {\n${lines(58)}};\n`,
  },
  {
    rule: constructorSize,
    title: "a constructor has at most 6 parameters",
    bad: "class A { constructor(a, b, c, d, e, f, g) {} }",
    good: "class A { constructor(a, b, c, d, e, f) {} }",
  },
  {
    rule: literalSpread,
    title: "no literal is spread into another one",
    bad: "f({ ...{ a, b }, c });",
    good: "f({ ...a, ...(b ? { c } : {}) }, [...b]);",
  },
  {
    rule: literalSpread,
    title: "no list is spread into another one",
    bad: "f([...[a, b], c]);",
    good: "f([...a, c], ...[b]);",
  },
  {
    rule: constantCase,
    title: "constants of a module are in upper case",
    bad: "const maxBytes = 4 * 1024;\nf(maxBytes);",
    good: "const MAX_BYTES = 4 * 1024;\nconst known = new Map();\nf(MAX_BYTES, known);",
  },
  {
    rule: optionBag,
    title: "options have at most 8 fields; the larger ones that exist do not grow",
    bad: bag("QueueOptions", 9),
    good: bag("QueueOptions", 8) + bag("SamplingOptions", 20),
  },
  {
    rule: handMadeRetry,
    title: "no loop that catches and pauses where `retry` does",
    bad: "for (;;) { try { await f(); } catch { await delay(5); } }",
    good: "for (;;) { each(async () => { try { g(); } catch { h(); } }); await delay(5); }",
  },
  {
    rule: handMadeChain,
    title: "no chain of promises where `SerialQueue` does",
    bad: "this.#last = this.#last\n  .then(() => f());",
    good: "this.#last = this.#next.then(() => f());",
  },
  {
    rule: handMadeFlush,
    title: "no flush in a microtask where `OncePerTurn` does",
    bad: "if (this.#waiting.push(each) === 1) queueMicrotask(() => this.#flush());",
    good: "const flush = new OncePerTurn(() => f(), queueMicrotask);",
  },
  {
    rule: shortTimeout,
    title: "no test has less time than the default",
    path: "libs/base/src/a.test.ts",
    bad: 'it.skipIf(b)("c", { timeout: 60_000 }, f);',
    good: 'it("c", { timeout: 600_000 }, f);\nvi.waitFor(f, { timeout: 60_000 });',
  },
  {
    rule: shortTimeout,
    title: "no hook has less time than the default",
    path: "libs/base/src/a.test.ts",
    bad: "beforeAll(f, 60_000);",
    good: "beforeAll(f);\nafterAll(f, 600_000);",
  },
  {
    rule: awaitedApart,
    title: "no promises are awaited apart that may reject meanwhile",
    path: "libs/base/src/a.test.ts",
    bad: "for (const reply of replies) expect((await reply).status).toBe(200);",
    good: "for (const end of ends) await end();\nfor await (const each of stream) f(each);",
  },
  {
    rule: fileName,
    title: "file names are kebab-case",
    path: "libs/base/src/badName.ts",
    bad: "f();",
    good: "f();",
  },
  {
    rule: noBarrel,
    title: "no file only re-exports",
    bad: 'export * from "./a.ts";\nexport { b } from "./b.ts";',
    good: 'export { b } from "./b.ts";\nexport const c = [1, 2].map(String);',
  },
  {
    rule: noBarrel,
    title: "no index files",
    path: "libs/base/src/index.ts",
    bad: "export const f = 1;",
    good: "export const f = 1;",
  },
  {
    rule: noSingleConstant,
    title: "no file for one constant",
    bad: "export const LIMIT = 5;",
    good: "export const limit = () => 5;",
  },
  {
    rule: forbiddenWords,
    title: "no unfinished or silenced code",
    bad: `f(); // TO${"DO"} later`,
    good: "f(); // Later calls see the first call's result.",
  },
  {
    rule: forbiddenWords,
    title: "no focused tests",
    bad: `it.${"only"}("x", f);`,
    good: 'it("x", f);',
  },
  {
    rule: domainNames,
    title: "exported names say what they are",
    bad: "export class JobManager {}",
    good: "export class Utilization {}",
  },
  {
    rule: domainNames,
    title: "types have no I- prefix",
    bad: "export interface IQueue {}",
    good: "export interface InferenceQueue {}",
  },
];

describe("every file", () => {
  const samplePath = "libs/base/src/sample.ts";
  it.each(SHAPE_RULES)(
    "$title",
    ({ rule, path = samplePath, bad, good, goodPath = samplePath }) => {
      expect(rule(parseSource(path, bad)), "the rule must find the bad sample").toHaveLength(1);
      expect(rule(parseSource(goodPath, good)), "the rule must pass the good sample").toEqual([]);
      expect(sources.flatMap(rule)).toEqual([]);
    },
  );

  it("is looser in tests, and a describe block is no function", () => {
    const path = "libs/base/src/sample.test.ts";
    const long = `describe("x", () => {\nit("y", () => {\n${lines(110)}});\n${lines(20)}});\n`;
    expect(functionSize(parseSource(path, long))).toEqual([]);
    expect(functionSize(parseSource(path, `it("y", () => {\n${lines(120)}});\n`))).toHaveLength(1);
    expect(fileSize(parseSource(path, lines(600)))).toEqual([]);
  });
});

describe("language", () => {
  const path = "libs/base/src/sample.test.ts";
  const sentence = (words: number) => `// ${"word ".repeat(words - 1)}word.\nf();`;
  const title = (length: number) => `it("${"t".repeat(length)}", f);`;
  const written = sources.filter((source) => !source.path.includes("/generated/"));

  it.each([
    [
      "sentences",
      "comment sentences of at most 25 words",
      longSentences,
      sentence(26),
      sentence(25),
    ],
    ["titles", "test titles of at most 80 characters", longTitles, title(81), title(80)],
    [
      "phrases",
      "standard terms instead of private idiom",
      privatePhrases,
      `// The leader is to${"ld"}.\nf();`,
      "// The leader receives it.\nf();",
    ],
    [
      "phrases",
      "standard terms in messages",
      privateMessages,
      `throw new Error(\`the lease of \${node} is o${"ver"}\`);`,
      `throw new Error(\`the lease of \${node} has expired\`);`,
    ],
    [
      "comments",
      "what something is comes first",
      subjectless,
      "interface A { /** Of a file. */ size: number }",
      "// Of a file.\ninterface A { /** The size of a file. */ size: number }",
    ],
    ["names", "standard terms in names", privateNames, "f(isToldAnew);", "f(isReported);"],
    ["names", "standard terms in whole names", privateNames, "f(isOver);", "f(isOverGrpc);"],
  ] as const)("%s: %s", (_, __, rule, bad, good) => {
    expect(rule(parseSource(path, bad))).toHaveLength(1);
    expect(rule(parseSource(path, good))).toEqual([]);
    expect([...written, ...protos].flatMap(rule)).toEqual([]);
  });

  it("sentences: a colon or semicolon ends none", () => {
    const clauses = `// ${"word ".repeat(13)}word: ${"word ".repeat(11)}word.\nf();`;
    expect(longSentences(parseSource(path, clauses))).toHaveLength(1);
  });

  it("proto files: comments that begin without a noun or a verb are found", () => {
    const bad = "message A {\n  // Of a file.\n  bool a = 1;\n}";
    expect(subjectless(parseProto("proto/a.proto", bad))).toHaveLength(1);
  });

  it("phrases: those of the wire protocol's comments are found", () => {
    const bad = `message A {\n  // The leader is to${"ld"}.\n  bool a = 1;\n}`;
    expect(privatePhrases(parseProto("proto/a.proto", bad))).toHaveLength(1);
    expect(protos.length).toBeGreaterThan(0);
  });

  // Each `~` splits a phrase, so that this file does not break its own rule.
  const listOf = (text: string) => text.replaceAll("~", "").split(/\s*;\s*/);
  const samples = listOf(`it was t~old; masters he~ard it; a wo~rd of the worker; who le~ads;
    who~ever asks; no~body; begin an~ew; the end the~reof; it sta~nds at 3; it comes to its e~nd;
    how f~ar it is; so m~any rounds; so l~ong of; it has c~ome; where the log st~ands; the next lo~ok;
    the call is o~ver; it goes o~n; it hu~ng up; without a w~ord; gave it u~p; it is a~way;
    all is w~ell; no si~gn; bytes ca~me; it was loo~ked at; it st~ands still; now and th~en;
    a si~ck device; a key that is no~ne`);
  const standard = listOf(`so many that it waits; so far; it has come back; a stand-in; a word;
    it is over 9 s; it goes on the disk; stand in for it; it looks for one; one look-up`);

  it("phrases: each finds a sample, and none a standard term", () => {
    const phrases = MESSAGE_PHRASES.map(([phrase]) => phrase);
    const blind = phrases.filter((phrase) => !samples.some((sample) => phrase.test(sample)));
    expect(blind).toEqual([]);
    const found = (text: string) => phrases.some((phrase) => phrase.test(text));
    expect(samples.filter((sample) => !found(sample))).toEqual([]);
    expect(standard.filter(found)).toEqual([]);
  });

  it("names: a comment names in backticks only what the code has", () => {
    const text = "// See `someName`.\nf();";
    const sample = parseSource(path, text);
    expect(unknownNames(sample, new Set(["f"]))).toHaveLength(1);
    const member = parseSource(path, "// See `queue.someName()`.\nf();");
    expect(unknownNames(member, new Set(["queue"]))).toHaveLength(1);
    expect(unknownNames(sample, namesIn([parseSource(path, "const someName = 1;")]))).toEqual([]);
    const known = namesIn(written);
    expect(written.flatMap((source) => unknownNames(source, known))).toEqual([]);
  });

  it("names: two files do not export one name for two things", () => {
    const one = (at: string) => parseSource(`libs/${at}/src/a.ts`, "export class Queue {}");
    expect(sharedNames([one("base"), one("raft")])).toHaveLength(1);
    const list = parseSource("libs/raft/src/b.ts", "class Queue {}\nexport { Queue };");
    expect(sharedNames([one("base"), list])).toHaveLength(1);
    expect(sharedNames([one("base")])).toEqual([]);
    expect(sharedNames(sources)).toEqual([]);
  });
});

describe("the layers", () => {
  const file = (path: string, text: string) => parseSource(path, text);

  it("hold: libs follow the table, nothing imports an app, Nest is for apps", () => {
    const bad = [
      file("libs/raft/src/a.ts", 'import { x } from "@heddle/contracts/x";'),
      file("libs/raft/src/a.ts", 'type X = import("@heddle/contracts/x").X;'),
      file("libs/base/src/a.ts", 'import { x } from "../../raft/src/x.ts";'),
      file("apps/cli/src/a.ts", 'import { x } from "@heddle/master/x";'),
      file("libs/rpc/src/a.ts", 'import { Module } from "@nestjs/common";'),
      file("libs/unknown/src/a.ts", 'import { x } from "@heddle/base/x";'),
    ];
    for (const sample of bad) expect(layering([sample]), sample.path).toHaveLength(1);
    const good = [
      file("libs/rpc/src/a.ts", 'import { x } from "@heddle/contracts/x"; import y from "./y.ts";'),
      file("libs/raft/src/a.test.ts", 'import { x } from "@heddle/simulation/x";'),
      file("apps/cli/src/a.ts", 'import { x } from "@heddle/auth/x";'),
      file("apps/cli/src/a.ts", 'spawn(new URL("../../master/src/main.ts", import.meta.url));'),
    ];
    expect(layering(good)).toEqual([]);
    expect(layering(sources)).toEqual([]);
  });

  it("keep raft, control, scheduler and training free of effects, clocks and chance", () => {
    const bad = [
      'import fs from "node:fs";',
      'import { systemClock } from "@heddle/base/clock";',
      "export const now = Date.now();",
      "export const now = new Date();",
      "export const dice = Math.random();",
      "export const now = performance.now();",
      "setTimeout(f, 1);",
    ];
    for (const text of bad)
      expect(purity([file("libs/raft/src/a.ts", text)]), text).toHaveLength(1);
    expect(purity([file("libs/raft/src/a.ts", "const d = new Date(0); x.setTimeout(1);")])).toEqual(
      [],
    );
    expect(purity([file("libs/rpc/src/a.ts", "const d = Date.now();")])).toEqual([]);
    expect(purity(sources)).toEqual([]);
  });

  it("have at most 20 source files, and 20 tests, in a folder", () => {
    const files = (count: number, end = ".ts", folder = "libs/base/src") =>
      Array.from({ length: count }, (_, at) => file(`${folder}/f${at}${end}`, "f();"));
    expect(folderSize(files(21))).toHaveLength(1);
    expect(folderSize(files(21, ".ts", "apps/master/test"))).toHaveLength(1);
    expect(folderSize(files(21, ".test.ts", "libs/base/src/testing"))).toHaveLength(1);
    expect(folderSize(files(21, ".test.ts"))).toHaveLength(1);
    expect(folderSize([...files(20), ...files(20, ".test.ts")])).toEqual([]);
    expect(folderSize(sources)).toEqual([]);
  });

  it("have no import cycle between files, of types neither", () => {
    const a = file("libs/base/src/a.ts", 'import { b } from "./b.ts";');
    const b = file("libs/base/src/b.ts", 'import { a } from "./a.ts";');
    const typed = file("libs/base/src/b.ts", 'import type { a } from "./a.ts";');
    const started = file("libs/base/src/b.ts", 'spawn(new URL("./a.ts", import.meta.url));');
    expect(cycles([a, b])).toHaveLength(1);
    expect(cycles([a, typed])).toHaveLength(1);
    expect(cycles([a, started])).toEqual([]);
    expect(cycles(sources)).toEqual([]);
  });

  it("hold between top folders of an app: imports, of types too, go one way", () => {
    const nodes = file("apps/master/src/nodes/a.ts", 'import type { x } from "../jobs/deep/b.ts";');
    const to = 'import { a } from "@heddle/master/nodes/a";';
    const jobs = file("apps/master/src/jobs/deep/b.ts", to);
    const none = new Set<string>();
    expect(folderCycles([nodes, jobs], none)).toHaveLength(1);
    const exception = "apps/master/src/jobs -> apps/master/src/nodes";
    expect(folderCycles([nodes, jobs], new Set([exception]))).toEqual([]);
    const alone = file("apps/master/src/jobs/deep/b.ts", "f();");
    for (const composing of ["jobs/deep/c.module.ts", "jobs/deep/c.test.ts", "main.ts"]) {
      const composed = [nodes, alone, file(`apps/master/src/${composing}`, to)];
      expect(folderCycles(composed, none)).toEqual([]);
      expect(folderCycles(composed, new Set([exception]))).toHaveLength(1);
    }
    expect(folderCycles(sources)).toEqual([]);
  });

  it("have no export that only tests or its own file use", () => {
    const a = file("libs/base/src/a.ts", "export const x = 1;\nexport const y = x;");
    const used = file("apps/cli/src/b.ts", 'import { x } from "@heddle/base/a";');
    const tested = file("libs/base/src/a.test.ts", 'import { x, y } from "./a.ts";');
    expect(deadExports([a, tested])).toHaveLength(2);
    expect(deadExports([a, used])).toEqual([
      "libs/base/src/a.ts:2: y is exported and nothing imports it",
    ]);
    expect(deadExports(sources)).toEqual([]);
    expect(needlessExceptions([a, used]).length).toBeGreaterThan(0);
    expect(needlessExceptions(sources)).toEqual([]);
  });
});

describe("the documents", () => {
  const documents = new Map(
    paths
      .filter((path) => path.endsWith(".md"))
      .map((path) => [path, readFileSync(join(root, path), "utf8")]),
  );

  it("have no link that leads nowhere", () => {
    const text =
      "[a](missing.md) [b](package.json) [c](#here) [d](#gone) [e](https://x.y)\n# Here\n";
    expect(brokenLinks(root, "sample.md", text)).toEqual([
      "sample.md:1: the link missing.md leads nowhere",
      "sample.md:1: the link #gone names no heading",
    ]);
    const problems = [...documents].flatMap(([path, text]) => brokenLinks(root, path, text));
    expect(problems).toEqual([]);
  });

  it("name source files that exist", () => {
    const known = new Set(paths.map((path) => path.slice(path.lastIndexOf("/") + 1)));
    const text = "See `libs/a.ts` and `b.proto`.\n```\n`c.ts`\n```\n";
    expect(unknownFiles("sample.md", text, new Set(["a.ts"]))).toEqual([
      "sample.md:1: there is no file `b.proto`",
    ]);
    expect([...documents].flatMap(([path, page]) => unknownFiles(path, page, known))).toEqual([]);
  });

  const words = (count: number) => "word ".repeat(count);
  const table = (text: string) => `<!-- generated: x -->\n${text}\n<!-- end -->\n`;
  const sample = "docs/guide/sample.md";
  it.each([
    ["lines of at most 140 columns", wideLines, "x".repeat(141), `${"x".repeat(140)}\n`],
    ["a guide's page of at most 1,500 words", longGuidePage, words(1_501), `${words(1_500)}\n`],
    ["standard terms", privatePagePhrases, `It is to${"ld"}.`, "It receives `to x`.\n"],
    ["a first sentence for whom it is", readerless, "# A\n\nThis is.", "# A\n\nFor users.\n"],
  ] as const)("have %s", (_, rule, bad, good) => {
    expect(rule(sample, bad)).toHaveLength(1);
    expect(rule(sample, good + table(`${"x".repeat(141)} ${words(1_501)}`))).toEqual([]);
    expect([...documents].flatMap(([path, text]) => rule(path, text))).toEqual([]);
  });

  it("have a bounded number of words together, generated ones apart", () => {
    const half = MAX_DOCUMENT_WORDS / 2;
    const pages = (readme: string) =>
      new Map([
        ["README.md", readme],
        [sample, words(half)],
      ]);
    expect(tooManyWords(pages(words(half + 1)))).toHaveLength(1);
    expect(tooManyWords(pages(words(half) + table(words(9))))).toEqual([]);
    expect(tooManyWords(documents)).toEqual([]);
  });

  it("have generated parts that fit promises, tags, tests and benchmark results", () => {
    const read = (path: string) => readFileSync(join(root, path), "utf8");
    for (const [path, text] of generatedPages(paths, sources, read)) {
      expect(read(path) === text, `${path} is not current: npm run docs writes it`).toBe(true);
    }
  });
});
