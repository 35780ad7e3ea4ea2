import { createReadStream } from "node:fs";
import { cp, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { expect, test } from "vitest";
import { EventStore } from "../log/event-store.ts";
import { parseVerifierKey } from "../notes/note-key.ts";
import { parseNote } from "../notes/signed-note.ts";
import { verifyTlogProof } from "../notes/verify-tlog-proof.ts";
import { exportLinesOf } from "./export-reader.ts";
import { verifyDirectory } from "./verify-directory.ts";
import { verifyExport } from "./verify-export.ts";

// A log of 300 entries in segments of 256, with checkpoints of 100 and 300. Its files never change.

const golden = fileURLToPath(new URL("../../testdata/format-1", import.meta.url));
const origin = "golden.example/events";
const key = "golden.example/events+8e880ff0+AepKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs";
const trust = { origin, keys: [parseVerifierKey(key)] };
const files = nodeStorageFiles;

// holds: events-golden
test("golden files: a directory and an export of format 1 verify", async () => {
  const known = [parseNote(await readFile(join(golden, "checkpoint")))];
  const directory = join(golden, "log");
  expect(await verifyDirectory({ files, directory }, trust, known)).toEqual({
    first: 0,
    size: 300,
    signed: 300,
    checkpoints: 2,
    faults: [],
  });
  const lines = exportLinesOf(createReadStream(join(golden, "export.ndjson")));
  expect(await verifyExport(lines, trust, known)).toEqual({
    first: 50,
    end: 280,
    size: 300,
    earlier: 1,
    faults: [],
  });
});

test("golden files: a log of format 1 opens, is read and continues", async () => {
  const directory = await mkdtemp(join(tmpdir(), "heddle-golden-"));
  await cp(join(golden, "log"), directory, { recursive: true });
  const { log, tornBytes } = await EventStore.open({
    files,
    directory,
    origin,
    segmentEntries: 256,
  });
  expect([log.size, tornBytes]).toEqual([300, 0]);
  for (const at of [0, 255, 256, 299]) {
    const entry = Buffer.from(`event ${at}`);
    expect(Buffer.from((await log.read(at)).entries[0]!)).toEqual(entry);
    expect(verifyTlogProof(await log.prove(at), entry, trust).size).toBe(300);
  }
  await log.append([Buffer.from("more")]);
  await log.close();
  const { size, signed, faults } = await verifyDirectory({ files, directory }, trust);
  expect({ size, signed, faults }).toEqual({ size: 301, signed: 300, faults: [] });
  await rm(directory, { recursive: true });
});
