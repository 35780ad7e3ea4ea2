import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { BlobStore, digestOf } from "@heddle/storage/blob-store";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterEach, beforeEach, expect, test } from "vitest";
import { VolatileControl } from "../../test/test-master.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { ContentReplicas } from "./content-replicas.ts";
import { CONTENT_GRACE_MS, DocumentUpkeep } from "./document-upkeep.ts";
import { ReplicatedDocuments } from "./replicated-documents.ts";

/** Between two checks of all contents. */
const SCAN_MS = 60_000;
const OWNER = "aaaaaaaa";
const PLACE = { owner: OWNER, project: "default" };
const CONTENT = Buffer.from("a content");
const DIGEST = digestOf(CONTENT);

let directory = "";
let nowMs = 0;
let lines: string[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "heddle-documents-"));
  nowMs = 0;
  lines = [];
});
afterEach(() => rmSync(directory, { recursive: true }));

async function openParts() {
  const note = (_fields: unknown, message: string) => void lines.push(message);
  const log = { info: note, warn: note, error: note };
  const control: ControlPlane = new VolatileControl();
  const store = await BlobStore.open({ files: nodeStorageFiles, directory });
  const credentials = { clusterToken: "unused" };
  const replicas = new ContentReplicas({ store, control, credentials, log });
  const documents = new ReplicatedDocuments(control, replicas);
  const upkeep = new DocumentUpkeep({ store, replicas, control, log, now: () => nowMs });
  return { control, store, replicas, documents, upkeep };
}

const named = (id: string) => ({ kind: "file", id, owner: OWNER }) as const;

async function textOf(documents: ReplicatedDocuments, id: string): Promise<string> {
  const found = await documents.get("file", id, PLACE);
  return Buffer.from(found?.content ?? []).toString();
}

// holds: documents-upkeep
test("upkeep: a content without a record is removed after its grace period only", async () => {
  const { store, documents, upkeep } = await openParts();
  await documents.put(named("kept"), Buffer.from("kept"));
  await store.put(CONTENT);
  await upkeep.step();
  nowMs = CONTENT_GRACE_MS - 1;
  await upkeep.step();
  expect(store.has(DIGEST)).toBe(true);
  // A put that may be about to propose its record begins the period again.
  await store.put(CONTENT);
  nowMs = CONTENT_GRACE_MS + SCAN_MS;
  await upkeep.step();
  expect(store.has(DIGEST)).toBe(true);
  nowMs = 2 * CONTENT_GRACE_MS + SCAN_MS;
  await upkeep.step();
  expect([store.has(DIGEST), store.has(digestOf(Buffer.from("kept")))]).toEqual([false, true]);
  expect(upkeep.swept).toBe(1);
});

test("upkeep: the content of a deleted document goes, one that another has stays", async () => {
  const { store, documents, upkeep } = await openParts();
  await documents.put(named("one"), CONTENT);
  await documents.put(named("two"), CONTENT);
  const sweep = async () => {
    nowMs += SCAN_MS;
    await upkeep.step();
    nowMs += CONTENT_GRACE_MS;
    await upkeep.step();
  };
  await documents.delete("file", "one", PLACE);
  await sweep();
  expect(await textOf(documents, "two")).toBe("a content");
  await documents.delete("file", "two", PLACE);
  await sweep();
  expect(store.has(DIGEST)).toBe(false);
});

test("upkeep: a damaged content is found within a day, and its loss is reported", async () => {
  const { documents, replicas, upkeep } = await openParts();
  await documents.put(named("one"), CONTENT);
  await documents.put(named("two"), Buffer.from("two"));
  await upkeep.step();
  expect(lines.join()).toMatch(/documents are intact/);
  writeFileSync(join(directory, DIGEST), "something else");
  await upkeep.step();
  expect(replicas.damaged).toBe(0);
  nowMs = 24 * 3_600_000;
  lines = [];
  await upkeep.step();
  expect(replicas.damaged).toBe(1);
  expect(lines.join()).toMatch(/missing on this master's disk, or damaged/);
  expect(lines.join()).not.toMatch(/documents are intact/);
  await expect(documents.get("file", "one", PLACE)).rejects.toThrow(/on no master that answers/);
  expect(await textOf(documents, "two")).toBe("two");
});

test("upkeep: contents that no master has are counted, and asked for seldom", async () => {
  const { store, replicas, documents, upkeep } = await openParts();
  await documents.put(named("one"), CONTENT);
  await store.delete(DIGEST, store.list().get(DIGEST)!);
  const asked: string[] = [];
  const heal = replicas.heal.bind(replicas);
  replicas.heal = (digest) => {
    asked.push(digest);
    return heal(digest);
  };
  // It waits 2, 4, 8 and then 16 seconds.
  for (const seconds of [0, 1, 2, 4, 6, 8, 13, 14, 29, 30]) {
    nowMs = seconds * 1_000;
    await upkeep.step();
  }
  expect(upkeep.missing).toBe(1);
  expect(asked).toEqual(Array(4).fill(DIGEST));
});

test("missing: a content that arrives after the question is not missing", async () => {
  const { store, replicas, documents } = await openParts();
  await documents.put(named("one"), CONTENT);
  await store.delete(DIGEST, store.list().get(DIGEST)!);
  const counted = replicas.missing();
  await setImmediate();
  await store.put(CONTENT);
  expect(await counted).toBe(0);
});

test("documents: one that is too large, malformed or without room is refused early", async () => {
  const { control, store, documents } = await openParts();
  const big = new Uint8Array(64 * 2 ** 20 + 1);
  await expect(documents.put(named("one"), big)).rejects.toMatchObject({
    code: "request_too_large",
  });
  await expect(documents.put(named("a b"), CONTENT)).rejects.toMatchObject({
    code: "invalid_value",
  });
  await control.propose({ type: "setting.put", atMs: 0, name: "documents", value: 0 });
  await expect(documents.put(named("one"), CONTENT)).rejects.toMatchObject({
    code: "insufficient_storage",
  });
  expect(() => documents.checkRoom(PLACE, 1)).toThrow(/the limit is 0/);
  expect(store.list().size).toBe(0);
});

test("documents: a rotated key owns what the keys before it stored", async () => {
  const { control, documents } = await openParts();
  const key = (id: string, rotatedFrom?: string) => ({ id, rotatedFrom, project: "default" });
  control.state.keys.set("bbbbbbbb", key("bbbbbbbb", "aaaaaaaa") as never);
  expect(documents.placeOf(key("cccccccc", "bbbbbbbb")).owner).toBe("aaaaaaaa");
  expect(documents.placeOf(key("cccccccc")).owner).toBe("cccccccc");
});
