import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readArtifact } from "./artifact-service.ts";
import { ArtifactStore } from "./artifact-store.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-artifacts-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const HOUR_MS = 3_600_000;
const root = () => join(folder, "artifacts");
const idOf = (job: string) => ({ jobId: job, attempt: 1, rank: 0, incarnation: 0 });

function store(bounds: { maxBytes?: number; maxAgeMs?: number } = {}) {
  return new ArtifactStore({ root: root(), maxBytes: 1_000, maxAgeMs: HOUR_MS, ...bounds });
}

/** What a task has left. */
function left(job: string, files: Readonly<Record<string, string>>): string {
  const work = join(folder, job);
  mkdirSync(work, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(work, name), text);
  return work;
}

function age(job: string, ms: number) {
  const at = new Date(Date.now() - ms);
  utimesSync(join(root(), job, "1.0"), at, at);
}

test("what was kept already is told again, as after a crash between keeping and telling", async () => {
  const work = left("a", { x: "one" });
  const first = await store().keep(idOf("a"), work);
  expect(first).toMatchObject([{ name: "x", bytes: 3 }]);
  mkdirSync(work);
  expect(await store().keep(idOf("a"), work)).toEqual(first);
});

test("a task that left nothing leaves no folder", async () => {
  expect(await store().keep(idOf("a"), left("a", {}))).toEqual([]);
  expect(readdirSync(folder)).toEqual(["a"]);
});

test("beyond the bound on bytes the oldest go, whole", async () => {
  const kept = store({ maxBytes: 250 });
  for (const [at, job] of ["a", "b", "c"].entries()) {
    await kept.keep(idOf(job), left(job, { x: "x".repeat(100) }));
    age(job, (3 - at) * 60_000);
  }
  await kept.prune();
  expect(readdirSync(root())).toEqual(["b", "c"]);
  await expect(kept.open(idOf("a"), "x")).rejects.toMatchObject({
    code: "not_found",
    message: expect.stringContaining("no artifact x of job a"),
  });
});

test("what is older than the bound goes; a task that wrote long before its end is as old as that", async () => {
  const kept = store();
  const work = left("a", { x: "1" });
  const longAgo = new Date(Date.now() - 9 * HOUR_MS);
  utimesSync(work, longAgo, longAgo);
  await kept.keep(idOf("a"), work);
  expect(readdirSync(root())).toEqual(["a"]);
  age("a", 2 * HOUR_MS);
  await kept.prune();
  expect(readdirSync(root())).toEqual([]);
});

test("more than the worker keeps, too many files and names that lead elsewhere are refused", async () => {
  const big = store({ maxBytes: 5 }).keep(idOf("a"), left("a", { x: "too much" }));
  await expect(big).rejects.toThrow(/8 bytes, and this worker keeps 5 \(--artifacts-mib\)/);
  const many = Object.fromEntries(Array.from({ length: 257 }, (_, i) => [`f${i}`, ""]));
  await expect(store().keep(idOf("b"), left("b", many))).rejects.toThrow(/257 files/);
  for (const name of ["../../x", "a//b", "/etc/passwd", ".", "a/..", "x".repeat(300), ""]) {
    await expect(store().open(idOf("a"), name)).rejects.toMatchObject({ code: "not_found" });
  }
});

test("a part of an artifact is read from its offset", async () => {
  await store().keep(idOf("a"), left("a", { x: "0123456789" }));
  const read = async (offset: number, maxBytes: number) => {
    const chunks: Buffer[] = [];
    for await (const chunk of readArtifact(store(), idOf("a"), "x", offset, maxBytes)) {
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString();
  };
  expect(await read(0, 0)).toBe("0123456789");
  expect(await read(4, 3)).toBe("456");
  expect(await read(8, 50)).toBe("89");
  expect(await read(20, 0)).toBe("");
});
