// holds: events-removed

import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { Heddle } from "@heddle/client/heddle";
import { isConsistent } from "@heddle/event-store/merkle/verify-proof";
import { parseCheckpoint } from "@heddle/event-store/notes/checkpoint";
import { parseVerifierKey } from "@heddle/event-store/notes/note-key";
import { parseNote } from "@heddle/event-store/notes/signed-note";
import { parseTlogProof } from "@heddle/event-store/notes/tlog-proof";
import { verifyTlogProof } from "@heddle/event-store/notes/verify-tlog-proof";
import { exportLinesOf } from "@heddle/event-store/verify/export-reader";
import { verifyDirectory } from "@heddle/event-store/verify/verify-directory";
import { verifyExport } from "@heddle/event-store/verify/verify-export";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

// Three masters as processes, whose event logs have 256 events in a file.

const NAMES = ["master-1", "master-2", "master-3"] as const;
const [FIRST, SECOND, THIRD] = NAMES;
const SEGMENT = 256;
/** So that a file is of more than 1 MiB. */
const DATA = { text: "x".repeat(4_500) };

let group: MasterGroup;

beforeAll(async () => {
  const env = { HEDDLE_TEST_EVENT_SEGMENT: String(SEGMENT) };
  group = new MasterGroup(3, ["--snapshot-entries", "100"], () => ({ env }));
  await group.startAll();
  await group.leader();
});
afterAll(() => group?.close());

const on = (name: string) => {
  return new Heddle({ endpoint: group.url(name)!, auth_token: group.adminKey }).events;
};

async function log(count: number): Promise<void> {
  for (let left = count; left > 0; left -= 50) {
    const some = Array.from({ length: Math.min(50, left) }, () =>
      on(FIRST).log({ type: "LOAD", data: DATA }),
    );
    await Promise.all(some);
  }
}

const firstOf = async (name: string) => Number((await on(name).keys()).first);
const trustIn = async () => {
  const { origin, keys } = await on(FIRST).keys();
  return { origin, keys: keys.map(parseVerifierKey) };
};
const headOf = (note: string) => parseCheckpoint(parseNote(note).text);

describe("removal of the oldest events", () => {
  it("all masters remove the same, say so, and proofs and checkpoints hold", async () => {
    const begin = async () => (await on(FIRST).log({ type: "BEGIN" })).revision === null;
    // A new group has not agreed on its version yet.
    await eventually(() => begin().catch(() => false));
    await log(3 * SEGMENT);
    let old = "";
    await eventually(async () => {
      old = await on(FIRST)
        .checkpoint()
        .catch(() => "");
      return old !== "" && headOf(old).size > 3 * SEGMENT;
    });
    const entry = await on(FIRST).entry("5");
    await group.change(FIRST, "PUT", "/api/v1/cluster/settings/event_mib", { value: 2 });
    const removed = async (name: string) =>
      (await on(name).query({ type: "EVENTS_REMOVED" }).page()).data;
    // A master deletes file by file: the removal has ended when every first event is its end.
    await eventually(async () => {
      const firsts = await Promise.all(NAMES.map(firstOf));
      const end = (await removed(SECOND)).at(-1)?.data?.end;
      return firsts.every((each) => each === end);
    });
    const first = await firstOf(FIRST);
    expect(first % SEGMENT).toBe(0);
    const removals = await removed(SECOND);
    expect(removals.at(-1)?.data).toMatchObject({ end: first });
    expect(removals[0]?.data).toMatchObject({ first: 0 });

    const [oldest] = (await on(THIRD).query({ limit: 1 }).page()).data;
    expect(oldest?.sequence).toBe(String(first));
    await expect(on(SECOND).entry("5")).rejects.toMatchObject({ status: 410 });
    await expect(on(SECOND).tile("tile/entries/000")).rejects.toMatchObject({ status: 410 });
    await expect(on(SECOND).query({ after: "5" }).page()).rejects.toMatchObject({ status: 410 });
    const trust = await trustIn();
    verifyTlogProof(parseTlogProof(await on(THIRD).proof("5")), entry, trust);
    const now = headOf(await on(FIRST).checkpoint());
    const { hashes } = await on(FIRST).consistency(headOf(old).size, now.size);
    const proof = hashes.map((hash) => Buffer.from(hash, "base64"));
    expect(isConsistent(headOf(old), now, proof)).toBe(true);
    const { body } = await on(SECOND).export();
    const verified = await verifyExport(exportLinesOf(body!), trust, [parseNote(old)]);
    expect(verified.faults).toEqual([]);
    expect(verified.first).toBe(first);
  });

  it("a master without events takes the hashes of removed ones from the others", async () => {
    await group.end(THIRD, "SIGKILL");
    await log(120);
    await group.change(FIRST, "POST", "/api/v1/cluster/snapshot");
    const folder = join(group.directory(THIRD), "events");
    rmSync(folder, { recursive: true });
    await group.start(THIRD);
    const newest = async (name: string) =>
      (await on(name).query({ order: "desc", limit: 1 }).page()).data[0];
    await eventually(async () => {
      const both = await Promise.all([FIRST, THIRD].map((name) => newest(name).catch(() => null)));
      return both[0] !== null && JSON.stringify(both[0]) === JSON.stringify(both[1]);
    });
    expect(await firstOf(THIRD)).toBe(await firstOf(FIRST));
    expect(await on(THIRD).proof("5")).toContain("5");
    const size = async () => headOf(await on(THIRD).checkpoint()).size;
    const last = Number((await newest(FIRST))!.sequence);
    await eventually(async () => (await size().catch(() => 0)) > last);
    const trust = await trustIn();
    await group.end(THIRD, "SIGTERM");
    const directory = join(folder, readdirSync(folder)[0]!);
    const place = { files: nodeStorageFiles, directory };
    expect((await verifyDirectory(place, trust, [])).faults).toEqual([]);
    await group.start(THIRD);
  });
});
