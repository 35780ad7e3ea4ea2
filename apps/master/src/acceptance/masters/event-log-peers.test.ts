import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { Heddle } from "@heddle/client/heddle";
import { buildGoPeer, runGoPeer } from "@heddle/event-store/export/testing/go-peer";
import { parseCheckpoint } from "@heddle/event-store/notes/checkpoint";
import { parseNote } from "@heddle/event-store/notes/signed-note";
import { parseTlogProof } from "@heddle/event-store/notes/tlog-proof";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

// The event log of a master as a process, as others read and check it.

const MASTER = "master-1";
/** More than a tile has. */
const EVENTS = 300;

let group: MasterGroup;
const directory = mkdtempSync(join(tmpdir(), "heddle-event-peers-"));

beforeAll(async () => {
  group = new MasterGroup(1);
  await group.startAll();
  const { events } = own();
  await eventually(async () => {
    await events.log({ type: "BEGIN" });
    return (await events.checkpoint().catch(() => "")).length > 0;
  });
  for (let at = 0; at < EVENTS; at += 50) {
    const some = Array.from({ length: 50 }, (_, each) => `e${at + each}`);
    await Promise.all(some.map((id) => events.log({ type: "LOAD", source: "urn:load", id })));
  }
});
afterAll(async () => {
  await group?.close();
  rmSync(directory, { recursive: true });
});

const own = (key = group.adminKey) => new Heddle({ endpoint: group.url(MASTER)!, auth_token: key });

/** The size of a checkpoint that no event follows. */
async function settled(): Promise<number> {
  const { events } = own();
  const last = (await events.query({ order: "desc", limit: 1 }).page()).data[0]!;
  const signed = async () => parseCheckpoint(parseNote(await events.checkpoint()).text).size;
  await eventually(async () => (await signed()) > Number(last.sequence));
  return signed();
}

describe("event log of a master, as others read it", () => {
  // holds: events-tiles
  it("tiles: Go's tlog package reads and verifies it over HTTP", {
    timeout: 300_000,
  }, async ({ skip }) => {
    const problem = buildGoPeer(directory);
    if (problem) {
      process.stdout.write(`skipped: the event log of a live master against Go: ${problem}\n`);
      skip(problem);
    }
    const { events } = own();
    const size = await settled();
    const { origin, keys } = await events.keys();
    const indexes = [0, 1, 255, 256, size - 1];
    const proofs = await Promise.all(indexes.map((index) => events.proof(String(index))));
    const inclusion = proofs.map((proof) =>
      parseTlogProof(proof).hashes.map((hash) => Buffer.from(hash).toString("base64")),
    );
    const input = {
      VerifierKey: keys.at(-1)!,
      URL: `${group.url(MASTER)}/api/v1/events/log`,
      Token: group.adminKey,
      Indexes: indexes,
      Inclusion: inclusion,
      OldSizes: [],
      OldRoots: [],
      Consistency: [],
    };
    const found = runGoPeer(directory, input);
    expect(found).toMatchObject({ Origin: origin, Size: size, Entries: size });
    expect(found.Inclusion).toEqual(inclusion);
    expect(() => runGoPeer(directory, { ...input, Token: "no" })).toThrow(/401/);
  });

  it("tiles: other paths are 404, and they need the whole cluster", async () => {
    const { events } = own();
    const none = ["000.p/0", "000.p/256", "x000/000", "0", "999", "000.p/1/2"];
    for (const index of none) {
      for (const kind of ["0", "entries"]) {
        const read = events.tile(`tile/${kind}/${index}`);
        await expect(read, index).rejects.toMatchObject({ status: 404 });
      }
    }
    await expect(events.tile("tile/63/000")).rejects.toMatchObject({ status: 404 });
    expect((await events.tile("tile/1/000.p/1")).byteLength).toBe(32);
    const body = { name: "blue", role: "operator", project: "blue" };
    const reply = await group.change(MASTER, "POST", "/api/v1/keys", body);
    const { key } = (await reply.json()) as { key: string };
    const read = own(key).events.tile("tile/entries/000");
    await expect(read).rejects.toMatchObject({ status: 403 });
  });
});
