// holds: documents-upkeep

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type BackupContent, backupBytes, checkBackup, readBackupContents } from "./backup-file.ts";
import { readSnapshotChunks, writeSnapshotFile } from "./snapshot-file.ts";
import { nodeStorageFiles as files } from "./storage-files.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-backup-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const META = { index: 3, term: 1, cluster: "c", detail: {} };
const BIG = Buffer.alloc(3 * 2 ** 20 + 5, "abc");
const CONTENTS: readonly BackupContent[] = [
  { digest: "a", file: Buffer.from("one") },
  { digest: "b", file: undefined },
  { digest: "c", file: BIG },
  { digest: "d", file: Buffer.alloc(0) },
];

async function* slowly<Item>(items: Iterable<Item>): AsyncGenerator<Item, void> {
  yield* items;
}

/** A backup of two chunks of state, whose file is read in pieces of that many bytes. */
async function backup(pieceBytes: number): Promise<string> {
  const state = join(folder, "state");
  await writeSnapshotFile(files, state, META, [Buffer.from("first"), Buffer.from("second")]);
  const bytes = readFileSync(state);
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    pieces.push(bytes.subarray(at, at + pieceBytes));
  }
  const parts: Uint8Array[] = [];
  for await (const part of backupBytes(slowly(pieces), slowly(CONTENTS))) parts.push(part);
  const path = join(folder, `backup-${pieceBytes}`);
  writeFileSync(path, Buffer.concat(parts));
  return path;
}

test("backup: contents follow the state, which readers of snapshots still find", async () => {
  for (const pieceBytes of [1, 44, 100_000]) {
    const path = await backup(pieceBytes);
    const chunks: string[] = [];
    for await (const chunk of readSnapshotChunks(files, path)) {
      chunks.push(Buffer.from(chunk).toString());
    }
    expect(chunks).toEqual(["first", "second"]);
    const found: BackupContent[] = [];
    for await (const content of readBackupContents(files, path)) found.push(content);
    expect(found.map(({ digest }) => digest)).toEqual(["a", "b", "c", "d"]);
    expect(found[1]?.file).toBeUndefined();
    expect(Buffer.from(found[2]?.file ?? []).equals(BIG)).toBe(true);
    expect(await checkBackup(files, path)).toEqual({ contents: 3, missing: 1 });
  }
});

test("backup: one that is cut or damaged in a content is refused", async () => {
  const path = await backup(1_000);
  const bytes = readFileSync(path);
  writeFileSync(path, bytes.subarray(0, bytes.length - 44));
  await expect(checkBackup(files, path)).rejects.toMatchObject({ code: "server_error" });
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 1_000) ^ 1, bytes.length - 1_000);
  writeFileSync(path, bytes);
  await expect(checkBackup(files, path)).rejects.toThrow(/does not match its checksum/);
});
