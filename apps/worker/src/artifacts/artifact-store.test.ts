import { execFileSync, spawn } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readArtifact } from "./artifact-service.ts";
import { ArtifactStore } from "./artifact-store.ts";
import { DirectoryReplica } from "./directory-replica.ts";
import type { OpenedFile } from "./replica.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-artifacts-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const HOUR_MS = 3_600_000;
const root = () => join(folder, "artifacts");
const idOf = (job: string) => ({ jobId: job, attempt: 1, rank: 0, incarnation: 0 });

async function textOf(file: OpenedFile): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of file.read(0, file.bytes)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function store(bounds: { maxBytes?: number; maxAgeMs?: number } = {}) {
  return new ArtifactStore({ root: root(), maxBytes: 1_000, maxAgeMs: HOUR_MS, ...bounds });
}

/** The files of a finished task. */
function left(job: string, files: Readonly<Record<string, string>>): string {
  const work = join(folder, job);
  mkdirSync(work, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(work, name), text);
  return job;
}

function age(job: string, ms: number) {
  const at = new Date(Date.now() - ms);
  utimesSync(join(root(), job, "1.0"), at, at);
}

test("artifacts: kept ones are reported again, as after a crash between both steps", async () => {
  left("a", { x: "one" });
  const first = await store().keep(idOf("a"), folder, "a");
  expect(first).toMatchObject([{ name: "x", bytes: 3 }]);
  mkdirSync(join(folder, "a"));
  expect(await store().keep(idOf("a"), folder, "a")).toEqual(first);
});

test("artifacts: what was added to the folder after its first check is checked too", async () => {
  const added: Readonly<Record<string, RegExp>> = {
    "line\nbreak": /not a valid name/,
    big: /250 bytes, and this worker keeps 200/,
  };
  for (const [at, name] of Object.keys(added).entries()) {
    const [job, kept] = [`job-${at}`, store({ maxBytes: 200 })];
    await kept.keep(idOf(job), folder, left(job, { x: "one" }));
    writeFileSync(join(root(), job, "1.0", name), "x".repeat(247));
    await expect(kept.keep(idOf(job), folder, job)).rejects.toThrow(added[name]);
    expect(readdirSync(join(root(), job))).toEqual([]);
  }
});

test("artifacts: a task without files leaves no folder", async () => {
  expect(await store().keep(idOf("a"), folder, left("a", {}))).toEqual([]);
  expect(readdirSync(folder)).toEqual(["a"]);
});

// holds: artifacts-store
test("artifacts: beyond the byte bound the oldest are removed whole", async () => {
  const kept = store({ maxBytes: 250 });
  for (const [at, job] of ["a", "b", "c"].entries()) {
    await kept.keep(idOf(job), folder, left(job, { x: "x".repeat(100) }));
    age(job, (3 - at) * 60_000);
  }
  await kept.prune();
  expect(readdirSync(root())).toEqual(["b", "c"]);
  await expect(kept.open(idOf("a"), "x")).rejects.toMatchObject({
    code: "not_found",
    message: expect.stringContaining("no artifact x of job a"),
  });
});

// holds: artifacts-store
test("artifacts: old ones are removed; their age counts from the task's end", async () => {
  const kept = store();
  const work = left("a", { x: "1" });
  const longAgo = new Date(Date.now() - 9 * HOUR_MS);
  utimesSync(join(folder, work), longAgo, longAgo);
  await kept.keep(idOf("a"), folder, "a");
  expect(readdirSync(root())).toEqual(["a"]);
  age("a", 2 * HOUR_MS);
  await kept.prune();
  expect(readdirSync(root())).toEqual([]);
});

// holds: artifacts-store
test("artifacts: too many bytes, too many files and escaping names are refused", async () => {
  const big = store({ maxBytes: 5 }).keep(idOf("a"), folder, left("a", { x: "too much" }));
  await expect(big).rejects.toThrow(/8 bytes, and this worker keeps 5 \(--artifacts-mib\)/);
  const many = Object.fromEntries(Array.from({ length: 257 }, (_, i) => [`f${i}`, ""]));
  await expect(store().keep(idOf("b"), folder, left("b", many))).rejects.toThrow(
    /257 artifacts, more than the limit of 256/,
  );
  for (const name of ["../../x", "a//b", "/etc/passwd", ".", "a/..", "x".repeat(300), ""]) {
    await expect(store().open(idOf("a"), name)).rejects.toMatchObject({ code: "not_found" });
  }
});

// holds: task-sparse
test("artifacts: holes of sparse files are kept up to a bound, and refused beyond", async () => {
  const kept = store({ maxBytes: 2 ** 40 });
  truncateSync(join(folder, left("a", { x: "some" }), "x"), 2 ** 20);
  expect(await kept.keep(idOf("a"), folder, "a")).toMatchObject([{ name: "x", bytes: 2 ** 20 }]);
  left("b", { x: "", y: "" });
  for (const name of ["x", "y"]) truncateSync(join(folder, "b", name), 50 * 2 ** 30);
  await expect(kept.keep(idOf("b"), folder, "b")).rejects.toThrow(
    /x has 53687091200 bytes, of which 0 are on the disk/,
  );
  left("c", { x: "", y: "" });
  for (const name of ["x", "y"]) truncateSync(join(folder, "c", name), 600 * 2 ** 20);
  await expect(kept.keep(idOf("c"), folder, "c")).rejects.toThrow(/y has 629145600 bytes/);
  expect(readdirSync(root(), { recursive: true })).not.toContain("c/1.0");
});

test("artifacts: a part is read from its offset", async () => {
  await store().keep(idOf("a"), folder, left("a", { x: "0123456789" }));
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

// holds: task-links
test("artifacts: a task that replaces its folder by a link publishes nothing", async () => {
  const secrets = join(folder, "secrets");
  mkdirSync(secrets);
  writeFileSync(join(secrets, "key"), "secret");
  symlinkSync(secrets, join(folder, "a"));
  await expect(store().keep(idOf("a"), folder, "a")).rejects.toThrow("replaced by a link");
  left("b", { x: "1" });
  symlinkSync(join(secrets, "key"), join(folder, "b/key"));
  execFileSync("mkfifo", [join(folder, "b/pipe")]);
  expect(await store().keep(idOf("b"), folder, "b")).toMatchObject([{ name: "x" }]);
  for (const name of ["key", "pipe"]) {
    await expect(store().open(idOf("b"), name)).rejects.toMatchObject({ code: "not_found" });
  }
  // A process that outlived its task swaps the kept files.
  rmSync(join(root(), "b"), { recursive: true });
  mkdirSync(join(root(), "b"));
  symlinkSync(secrets, join(root(), "b/1.0"));
  await expect(store().open(idOf("b"), "key")).rejects.toMatchObject({ code: "not_found" });
  await expect(store().keep(idOf("b"), folder, "b")).rejects.toThrow("replaced by a link");
  await store({ maxAgeMs: -1 }).prune();
  expect(readFileSync(join(secrets, "key"), "utf8")).toBe("secret");
});

/** Replaces the folder by the link and back, without a pause. */
const SWAP = `
  const fs = require("node:fs");
  const [own, link, spare] = process.argv.slice(1);
  for (;;) {
    try { fs.renameSync(own, spare); fs.renameSync(link, own); } catch {}
    try { fs.renameSync(own, link); fs.renameSync(spare, own); } catch {}
  }`;

// holds: task-links
test("artifacts: a folder that is swapped with a link is never published", async () => {
  const secrets = join(folder, "secrets");
  mkdirSync(secrets);
  writeFileSync(join(secrets, "x"), "secret");
  for (let i = 0; i < 12; i++) {
    const job = `s${i}`;
    left(job, { x: "own" });
    const link = join(folder, `${job}.link`);
    symlinkSync(secrets, link);
    const swapper = spawn(process.execPath, ["-e", SWAP, join(folder, job), link, `${link}.spare`]);
    await new Promise((resolve) => setTimeout(resolve, 60));
    for (let tries = 0; tries < 20; tries++) {
      const kept = await store()
        .keep(idOf(job), folder, job)
        .catch(() => []);
      for (const { bytes } of kept) expect(bytes).toBe(3);
      const file = await store()
        .open(idOf(job), "x")
        .catch(() => undefined);
      if (!file) continue;
      expect(await textOf(file)).toBe("own");
      await file.close();
    }
    swapper.kill("SIGKILL");
    await new Promise((resolve) => swapper.once("close", resolve));
  }
});

test("artifacts: a copy outlives the worker, is atomic, and is retried", async () => {
  const shared = join(folder, "shared");
  const uncopied: unknown[] = [];
  const options = { root: root(), maxBytes: 1_000, maxAgeMs: HOUR_MS };
  const withCopy = new ArtifactStore({
    ...options,
    replica: new DirectoryReplica(shared, HOUR_MS),
    onUncopied: (error) => uncopied.push(error),
  });
  writeFileSync(shared, "in the way");
  await withCopy.keep(idOf("a"), folder, left("a", { x: "0123456789" }));
  expect(uncopied).toHaveLength(1);
  rmSync(shared);
  await withCopy.replicate();
  expect(readdirSync(shared)).toEqual(["a"]);
  await withCopy.keep(idOf("b"), folder, left("b", { y: "b" }));
  expect(readdirSync(shared).sort()).toEqual(["a", "b"]);
  rmSync(root(), { recursive: true });
  const other = new ArtifactStore({
    ...options,
    root: join(folder, "other"),
    replica: new DirectoryReplica(shared, HOUR_MS),
  });
  const file = await other.open(idOf("a"), "x");
  expect([file.bytes, await textOf(file)]).toEqual([10, "0123456789"]);
  await file.close();
  await withCopy.drop(idOf("b"));
  expect(readdirSync(join(shared, "b"))).toEqual([]);
  await withCopy.drop(idOf("b"));
  await new DirectoryReplica(shared, -1).prune();
  expect(readdirSync(shared)).toEqual([]);
});
