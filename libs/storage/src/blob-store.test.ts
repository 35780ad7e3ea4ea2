import { SecretKeys } from "@heddle/base/secret-keys";
import { plainDisk } from "@heddle/simulation/plain-disk";
import type { SimulatedDisk } from "@heddle/simulation/simulated-disk";
import { expect, test } from "vitest";
import { BlobStore, digestOf } from "./blob-store.ts";
import type { StorageFile, StorageFiles } from "./storage-files.ts";

const CONTENT = Buffer.alloc(500, "content");
const OTHER = Buffer.alloc(300, "other");
const DIGEST = digestOf(CONTENT);

const openStore = (files: StorageFiles, keys?: SecretKeys) =>
  BlobStore.open({ files, directory: "blobs", keys });

/** Never answers from the operation of that number on, as for a process that has crashed. */
function crashing(disk: SimulatedDisk, at: number): StorageFiles & { count: number } {
  const files = {
    ...disk.mount(),
    count: 0,
    pass<T>(operation: () => Promise<T>): Promise<T> {
      return files.count++ >= at ? Promise.reject(new Error("crash")) : operation();
    },
    rename: (from: string, to: string) => files.pass(() => disk.rename(from, to)),
    remove: (path: string) => files.pass(() => disk.remove(path)),
    syncDirectory: () => files.pass(() => disk.syncDirectory()),
    async open(path: string, mode: "buffered" | "durable" | "read"): Promise<StorageFile> {
      const file = await files.pass(() => disk.open(path, mode));
      const { write, truncate, sync } = file;
      file.write = (buffer, position) => files.pass(() => write(buffer, position));
      file.truncate = (size) => files.pass(() => truncate(size));
      file.sync = () => files.pass(() => sync());
      return file;
    },
  };
  return files;
}

async function allOf(store: BlobStore): Promise<Uint8Array[]> {
  const contents: Uint8Array[] = [];
  for (const digest of store.list().keys()) contents.push((await store.get(digest))!);
  return contents;
}

// holds: documents-durable
test("blob store: a crash at any operation loses nothing acknowledged", async () => {
  for (let at = 0; ; at++) {
    for (let seed = 0; seed < 8; seed++) {
      const disk = plainDisk(seed);
      const files = crashing(disk, at);
      const stored: Buffer[] = [];
      const store = await openStore(files).catch(() => undefined);
      for (const content of [CONTENT, OTHER]) {
        await store?.put(content).then(
          () => stored.push(content),
          () => undefined,
        );
      }
      disk.crash();
      const again = await openStore(disk);
      for (const content of stored) {
        expect(await again.get(digestOf(content)), `operation ${at}`).toEqual(content);
      }
      // What is listed is whole: a file has its name only when it is complete.
      await allOf(again);
      expect(disk.paths().filter((path) => path.endsWith(".tmp"))).toEqual([]);
      if (stored.length === 2) {
        expect(at).toBeGreaterThan(10);
        return;
      }
    }
  }
});

test("blob store: a deleted content stays deleted after a crash", async () => {
  const disk = plainDisk(1);
  const store = await openStore(disk);
  await store.put(CONTENT);
  await store.delete(DIGEST, store.list().get(DIGEST)!);
  disk.crash("all");
  expect([...(await openStore(disk)).list().keys()]).toEqual([]);
});

test("blob store: a content that was put again is not deleted as of its earlier put", async () => {
  const store = await openStore(plainDisk(1));
  await store.put(CONTENT);
  const put = store.list().get(DIGEST)!;
  const again = store.put(CONTENT);
  await Promise.all([again, store.delete(DIGEST, put)]);
  expect(await store.get(DIGEST)).toEqual(CONTENT);
});

test("blob store: any flipped bit is found when it is read, and a put repairs it", async () => {
  const keys = new SecretKeys([Buffer.alloc(32, 1)]);
  for (const each of [undefined, keys]) {
    const disk = plainDisk(1);
    const store = await openStore(disk, each);
    await store.put(CONTENT);
    const path = `blobs/${DIGEST}`;
    for (let byte = 0; byte < disk.content(path).length; byte += 7) {
      disk.flipBit(path, byte, byte % 8);
      await expect(store.get(DIGEST), `byte ${byte}`).rejects.toThrow();
      disk.flipBit(path, byte, byte % 8);
    }
    disk.flipBit(path, 3, 1);
    await store.put(CONTENT);
    expect(await store.get(DIGEST)).toEqual(CONTENT);
  }
});

test("blob store: the first key encrypts contents, and verify renews the others", async () => {
  const [old, fresh] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];
  const disk = plainDisk(1);
  await (await openStore(disk)).put(CONTENT);
  expect(disk.content(`blobs/${DIGEST}`).includes("content")).toBe(true);
  const sealed = await openStore(disk, new SecretKeys([old]));
  expect(await sealed.verify(DIGEST)).toEqual(CONTENT);
  expect(disk.content(`blobs/${DIGEST}`).includes("content")).toBe(false);
  const both = await openStore(disk, new SecretKeys([fresh, old]));
  expect(await both.verify(DIGEST)).toEqual(CONTENT);
  const put = both.list().get(DIGEST);
  expect(await both.verify(DIGEST)).toEqual(CONTENT);
  expect(both.list().get(DIGEST)).toBe(put);
  expect(await (await openStore(disk, new SecretKeys([fresh]))).get(DIGEST)).toEqual(CONTENT);
  await expect((await openStore(disk, new SecretKeys([old]))).get(DIGEST)).rejects.toThrow(
    /secrets key/,
  );
});

test("blob store: what is not here is undefined, and other files are left alone", async () => {
  const disk = plainDisk(1);
  await (await disk.open("blobs/note.txt", "durable")).write(Buffer.from("x"), 0);
  const store = await openStore(disk);
  expect([await store.get(DIGEST), await store.verify(DIGEST)]).toEqual([undefined, undefined]);
  expect(store.has(DIGEST)).toBe(false);
  expect(disk.paths()).toEqual(["blobs/note.txt"]);
});

test("blob store: a full disk is a clear error, and leaves room for the next put", async () => {
  const disk = plainDisk(1);
  let isFull = true;
  const files: StorageFiles = {
    ...disk.mount(),
    open: async (path, mode) => {
      const file = await disk.open(path, mode);
      const { sync } = file;
      const full = Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
      file.sync = () => (isFull ? Promise.reject(full) : sync());
      return file;
    },
  };
  const store = await openStore(files);
  await expect(store.put(CONTENT)).rejects.toMatchObject({
    code: "insufficient_storage",
    message: expect.stringMatching(/disk of blobs is full/),
    cause: expect.objectContaining({ code: "ENOSPC" }),
  });
  expect([store.has(DIGEST), disk.paths()]).toEqual([false, []]);
  isFull = false;
  await store.put(CONTENT);
  expect(await store.get(DIGEST)).toEqual(CONTENT);
});
