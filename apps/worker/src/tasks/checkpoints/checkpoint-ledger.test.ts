// holds: task-links

import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ProgressFile } from "../../records/progress-file.ts";
import { CheckpointFolders } from "./checkpoint-folders.ts";
import { CheckpointLedger } from "./checkpoint-ledger.ts";

let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "heddle-ledger-"));
  mkdirSync(join(root, "job_A"));
  mkdirSync(join(root, "others"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

test("ledger: names that lead out of a job's folder remove nothing, nor do links", async () => {
  writeFileSync(join(root, "others/file"), "kept");
  symlinkSync(join(root, "others"), join(root, "job_A/link"));
  mkdirSync(join(root, "job_A/folder/inner"), { recursive: true });
  const ledger = new CheckpointLedger(root, { jobId: "job_A", rank: 0 }, 1);
  await ledger.add(["../others/file", "link/file", "folder/inner", "last"]);
  expect(readFileSync(join(root, "others/file"), "utf8")).toBe("kept");
  expect(existsSync(join(root, "job_A/folder/inner"))).toBe(false);
  await ledger.add(["link", "later"]);
  expect(existsSync(join(root, "job_A/link"))).toBe(false);
  expect(readFileSync(join(root, "others/file"), "utf8")).toBe("kept");
});

test("ledger: measures the checkpoints that it keeps, files and folders, not links", async () => {
  const ledger = new CheckpointLedger(root, { jobId: "job_A", rank: 0 }, 4);
  expect(await ledger.measure()).toBe(0);
  mkdirSync(join(root, "job_A/folder/inner"), { recursive: true });
  writeFileSync(join(root, "job_A/folder/inner/a"), "x".repeat(30));
  writeFileSync(join(root, "job_A/folder/b"), "x".repeat(5));
  writeFileSync(join(root, "job_A/file"), "x".repeat(7));
  writeFileSync(join(root, "others/file"), "x".repeat(1_000));
  symlinkSync(join(root, "others"), join(root, "job_A/link"));
  await ledger.add(["../others/file", "link", "folder", "file"]);
  expect(await ledger.measure()).toBe(42);
  await ledger.add(["gone", "gone too", "third", "fourth"]);
  expect(await ledger.measure()).toBe(0);
});

test("ledger: is not written through a link in its place", async () => {
  const [own, foreign] = [join(root, "job_A/.heddle-rank-0.json"), join(root, "others/file")];
  writeFileSync(foreign, "kept");
  symlinkSync(foreign, own);
  symlinkSync(foreign, `${own}.new`);
  await new CheckpointLedger(root, { jobId: "job_A", rank: 0 }, 2).add(["a", "b", "c"]);
  expect(readFileSync(foreign, "utf8")).toBe("kept");
  expect(JSON.parse(readFileSync(own, "utf8"))).toEqual(["b", "c"]);
});

test("ledger: what a task puts in place of its list or progress does not block", async () => {
  const path = join(root, "job_A/.heddle-rank-0.json");
  execFileSync("mkfifo", [path]);
  const ledger = () => new CheckpointLedger(root, { jobId: "job_A", rank: 0 }, 2);
  expect(await new ProgressFile(root, "job_A/.heddle-rank-0.json").read()).toEqual([]);
  await ledger().add(["a"]);
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(["a"]);
  truncateSync(path, 17 * 2 ** 20);
  await ledger().add(["b"]);
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(["b"]);
});

test("ledger: a list that a task has filled with names is as cheap as a short one", async () => {
  const path = join(root, "job_A/.heddle-rank-0.json");
  const ledger = () => new CheckpointLedger(root, { jobId: "job_A", rank: 0 }, 2);
  // Nearly all that is read of a list: comparing each with each would take minutes.
  const names = (count: number) => Array.from({ length: count }, (_, i) => `n${i}`);
  for (const count of [50_000, 1_500_000]) {
    writeFileSync(path, JSON.stringify(names(count)));
    await ledger().add(["a"]);
    const last = count === 50_000 ? ["n49999"] : [];
    expect(JSON.parse(readFileSync(path, "utf8"))).toEqual([...last, "a"]);
  }
  await ledger().add(names(300_000));
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(["n299998", "n299999"]);
});

test("progress: of many lines some from all over are read, and each checkpoint", async () => {
  const progress = new ProgressFile(root, "others/progress");
  const steps = (from: number, count: number) =>
    Array.from({ length: count }, (_, i) => `{"step":${from + i}}\n`);
  const lines = [...steps(0, 2_001), '{"checkpoint":"c1"}\n', ...steps(2_001, 10_000)];
  writeFileSync(join(root, "others/progress"), lines.join(""));
  const read = await progress.read();
  expect(read.length).toBeGreaterThan(900);
  expect(read.length).toBeLessThanOrEqual(1_001);
  expect(read).toContainEqual({ checkpoint: "c1" });
  expect(read.at(-1)).toEqual({ step: 12_000 });
  const read500s = new Set(read.map(({ step = 0 }) => Math.floor(step / 500)));
  expect(read500s.size).toBe(25);
  expect(await progress.read()).toEqual([]);
});

test("progress: more than one read takes is read at its end, and in pieces before", async () => {
  const path = join(root, "others/progress");
  const progress = new ProgressFile(root, "others/progress");
  writeFileSync(path, '{"step":0}\n{"st');
  expect(await progress.read()).toEqual([{ step: 0 }]);
  expect(progress.offset).toBe('{"step":0}\n'.length);
  const lines = Array.from({ length: 100_000 }, (_, i) => `{"step":${i + 2}}\n`);
  appendFileSync(path, `ep":1}\n${lines.join("")}`);
  const steps = (await progress.read()).map(({ step = 0 }) => step);
  expect(steps.length).toBeLessThanOrEqual(1_000);
  expect(steps).toEqual(steps.toSorted((a, b) => a - b));
  expect(steps.at(-1)).toBe(100_001);
  // The last 256 KiB have some 17,000 of them.
  const before = steps.filter((step) => step < 80_000);
  expect(new Set(before.map((step) => Math.floor(step / 20_000))).size).toBe(4);
  expect(progress.malformed).toBe(0);
  appendFileSync(path, '{"step":7}\n');
  expect(await progress.read()).toEqual([{ step: 7 }]);
});

test("progress: a checkpoint with control characters in its name is not taken", async () => {
  const progress = new ProgressFile(root, "others/progress");
  const names = ["a\0b", "\x1b]0;title\x07", "two\nlines", "right\u202eleft", "épo que/1"];
  const lines = names.map((checkpoint) => `${JSON.stringify({ checkpoint })}\n`);
  writeFileSync(join(root, "others/progress"), lines.join(""));
  expect(await progress.read()).toEqual([{ checkpoint: "épo que/1" }]);
  expect(progress.malformed).toBe(4);
});

test("folders: are reported once pending removals are done", async () => {
  for (const job of ["job_B", "job_C", "job_D"]) mkdirSync(join(root, job));
  for (let i = 0; i < 200; i++) writeFileSync(join(root, "job_B", `${i}`), "saved");
  writeFileSync(join(root, "job_D/failed"), "saved");
  const quiet = { info() {}, warn() {}, error() {} };
  const folders = new CheckpointFolders(root, (job) => job === "job_A", quiet);
  expect(await folders.next()).toEqual(["job_B", "job_C", "job_D"]);
  folders.forget(["job_B", "job_A"], ["job_C", "job_D"], []);
  expect(await folders.next()).toEqual(["job_D"]);
  expect(existsSync(join(root, "job_A"))).toBe(true);
});
