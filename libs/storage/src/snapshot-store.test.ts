import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SNAPSHOT_MAX_CHUNK_BYTES } from "./snapshot-file.ts";
import { SnapshotStore } from "./snapshot-store.ts";
import { nodeStorageFiles } from "./storage-files.ts";

let directory: string;
let store: SnapshotStore;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-snapshots-"));
  store = await SnapshotStore.open(nodeStorageFiles, directory);
});
afterEach(() => rm(directory, { recursive: true }));

const chunks = [Buffer.from("first"), Buffer.from("second"), Buffer.alloc(70_000, 7)];
const metaOf = (index: number) => ({ index, term: 2, cluster: "c", detail: { voters: [1] } });

async function contentOf(index: number): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const chunk of store.chunks({ index, term: 2 })) parts.push(chunk);
  return Buffer.concat(parts);
}

test("snapshot: data and metadata are read back as written", async () => {
  await store.write(metaOf(7), chunks);
  expect(await store.meta({ index: 7, term: 2 })).toEqual(metaOf(7));
  expect(await contentOf(7)).toEqual(Buffer.concat(chunks));
});

// holds: wal-bit-flip
test("snapshot: any changed byte of a file is detected", async () => {
  await store.write(metaOf(7), [Buffer.from("ab")]);
  const path = join(directory, "snapshot-0000000000000007-0000000002.snap");
  const good = await readFile(path);
  for (let at = 0; at < good.length; at++) {
    const bad = Buffer.from(good);
    bad[at] = (bad[at] ?? 0) ^ 0x10;
    await writeFile(path, bad);
    await expect(contentOf(7), `byte ${at}`).rejects.toMatchObject({ code: "server_error" });
  }
});

test("snapshot: a file truncated at any byte is detected", async () => {
  await store.write(metaOf(7), [Buffer.from("ab")]);
  const path = join(directory, "snapshot-0000000000000007-0000000002.snap");
  const good = await readFile(path);
  for (let length = 0; length < good.length; length++) {
    await writeFile(path, good.subarray(0, length));
    await expect(contentOf(7), `${length} bytes`).rejects.toMatchObject({ code: "server_error" });
  }
});

test("snapshot: chunks in another order are detected", async () => {
  await store.write(metaOf(7), [Buffer.from("ab"), Buffer.from("cd")]);
  const path = join(directory, "snapshot-0000000000000007-0000000002.snap");
  const file = await readFile(path);
  const [one, two] = [file.indexOf("ab"), file.indexOf("cd")];
  const bytes = two - one;
  const from = two + "cd".length - 2 * bytes;
  const [first, second] = [from, from + bytes].map((at) =>
    Buffer.from(file.subarray(at, at + bytes)),
  );
  file.set([...second!, ...first!], from);
  await writeFile(path, file);
  await expect(contentOf(7)).rejects.toMatchObject({ code: "server_error" });
});

test("snapshot: a chunk that readers would take for damage is not written", async () => {
  await store.write(metaOf(7), [Buffer.alloc(SNAPSHOT_MAX_CHUNK_BYTES, 7)]);
  expect(await contentOf(7)).toHaveLength(SNAPSHOT_MAX_CHUNK_BYTES);
  const tooBig = [Buffer.alloc(SNAPSHOT_MAX_CHUNK_BYTES + 1)];
  await expect(store.write(metaOf(8), tooBig)).rejects.toThrow(RangeError);
});

test("snapshot: a failed write leaves nothing, and an unfinished one is removed", async () => {
  const failing = (async function* () {
    yield Buffer.from("x");
    throw new Error("the state machine failed");
  })();
  await expect(store.write(metaOf(7), failing)).rejects.toThrow("the state machine failed");
  expect(await nodeStorageFiles.list(directory)).toEqual([]);
  await writeFile(join(directory, "incoming-0.tmp"), "half");
  await SnapshotStore.open(nodeStorageFiles, directory);
  expect(await nodeStorageFiles.list(directory)).toEqual([]);
});

test("snapshot: the newest two are kept, and one that was never used can be dropped", async () => {
  for (const index of [3, 5, 8, 13]) await store.write(metaOf(index), chunks);
  await store.prune({ index: 8, term: 2 });
  expect((await store.list()).map(({ index }) => index)).toEqual([13, 8, 5]);
  await store.removeNewer({ index: 8, term: 2 });
  expect((await store.list()).map(({ index }) => index)).toEqual([8, 5]);
});

test("snapshot: quarantine renames a damaged file and keeps only the latest", async () => {
  for (const index of [3, 5]) {
    await store.write(metaOf(index), chunks);
    const path = join(directory, `snapshot-000000000000000${index}-0000000002.snap`);
    expect(await store.damage(metaOf(index))).toBeUndefined();
    const bad = await readFile(path);
    bad[bad.length - 50] = (bad.at(-50) ?? 0) ^ 1;
    await writeFile(path, bad);
    expect(await store.damage(metaOf(index))).toMatchObject({
      code: "server_error",
      message: expect.stringContaining(path),
    });
    await store.quarantine(metaOf(index));
  }
  expect(await store.damage(metaOf(7))).toMatchObject({
    message: expect.stringMatching(/cannot be read/),
  });
  expect(await store.list()).toEqual([]);
  expect(await readdir(directory)).toEqual(["snapshot-0000000000000005-0000000002.snap.damaged"]);
});

test("snapshot file: bytes after its end are refused", async () => {
  await store.write(metaOf(7), [Buffer.from("ab")]);
  const path = join(directory, "snapshot-0000000000000007-0000000002.snap");
  await writeFile(path, Buffer.concat([await readFile(path), Buffer.from([0])]));
  await expect(contentOf(7)).rejects.toMatchObject({ code: "server_error" });
});

test("storage directory: created with its parents, for its owner alone, and once", async () => {
  const nested = join(directory, "a", "b");
  for (let time = 0; time < 2; time++) await nodeStorageFiles.makeDirectory(nested);
  expect((await stat(nested)).mode & 0o777).toBe(0o700);
});
