import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { Heddle } from "@heddle/client/heddle";
import { buildGoPeer, runGoPeer } from "@heddle/event-store/export/testing/go-peer";
import { parseCheckpoint } from "@heddle/event-store/notes/checkpoint";
import { parseVerifierKey } from "@heddle/event-store/notes/note-key";
import { parseNote } from "@heddle/event-store/notes/signed-note";
import { parseTlogProof } from "@heddle/event-store/notes/tlog-proof";
import { verifyTlogProof } from "@heddle/event-store/notes/verify-tlog-proof";
import { exportLinesOf } from "@heddle/event-store/verify/export-reader";
import { verifyExport } from "@heddle/event-store/verify/verify-export";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

// The event log of a master as a process, as others read and check it.

const MASTER = "master-1";
/** More than a tile has. */
const EVENTS = 300;

let group: MasterGroup;
const directory = mkdtempSync(join(tmpdir(), "heddle-event-peers-"));

let s3: S3Server;

beforeAll(async () => {
  s3 = await startS3Server();
  const sinks = [`file://${directory}/copies`, "s3://heddle/audit", "nats://127.0.0.1:9/none"];
  const { env } = s3;
  group = new MasterGroup(1, ["--event-sinks", sinks.join()], () => ({ env }));
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
  await s3?.close();
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
  it("tiles: Go's tlog package reads and verifies it over HTTP", async ({ skip }) => {
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

  // holds: events-shredded
  it("shred: personal data are unreadable for good, and every proof still holds", async () => {
    const { events } = own();
    const about = { type: "VISIT", data: { diagnosis: "swordfish" }, audit: { user_id: "alice" } };
    await events.log({ ...about, id: "visit-1" });
    await events.log({ ...about, id: "visit-2", audit: { user_id: "bob" } });
    const visits = async () => (await events.query({ type: "VISIT" }).page()).data;
    const stored = () =>
      globSync(`${group.directory(MASTER)}/events/*/*`).map((path) => readFileSync(path, "latin1"));
    const before = await visits();
    expect(before).toMatchObject([
      { actorid: "alice", data: about.data, userid: expect.stringMatching(/^key:/) },
      { actorid: "bob", data: about.data },
    ]);
    const [{ sequence }, { userid = "" }] = [before[0]!, before[1]!];
    expect((await events.query({ user: userid, limit: 1 }).page()).data).toHaveLength(1);
    await settled();
    const proof = await events.proof(sequence);
    expect(stored().join()).not.toMatch(/swordfish|alice|"userid"/);

    await expect(events.shred("carol")).rejects.toMatchObject({ status: 404 });
    const { id } = await events.shred("alice");
    const after = await visits();
    expect(after[0]).toMatchObject({ shredded: "actor", data: {}, userid });
    expect(JSON.stringify(after[0])).not.toMatch(/swordfish|alice/);
    expect(after[1]).toEqual(before[1]);
    const [made] = (await events.query({ type: "SUBJECT_SHRED" }).page()).data;
    expect(made).toMatchObject({ subject: `subject-keys/${id}`, userid });
    await expect(events.shred("alice")).rejects.toMatchObject({ status: 404 });
    await settled();

    await group.end(MASTER, "SIGKILL");
    await group.start(MASTER);
    await group.leader();
    const { origin, keys } = await own().events.keys();
    const trust = { origin, keys: keys.map(parseVerifierKey) };
    const entry = await own().events.entry(sequence);
    verifyTlogProof(parseTlogProof(proof), entry, trust);
    const { body } = await own().events.export();
    const verified = await verifyExport(exportLinesOf(body!), trust, []);
    expect(verified.faults).toEqual([]);
    const started = (await own().events.query({ type: "VISIT" }).page()).data;
    expect(started).toEqual(after);
    expect(stored().join()).not.toMatch(/swordfish|alice|"userid"/);
  });

  // holds: events-sinks
  it("sinks: have each event, also after a kill, and an unreachable one delays none", async () => {
    const linesOf = (paths: readonly string[]) =>
      paths.flatMap((path) => readFileSync(path, "utf8").split("\n").filter(Boolean));
    const placesOf = (lines: readonly string[]) =>
      lines.map((line) => Number((JSON.parse(line) as { sequence: string }).sequence));
    const last = async () =>
      Number((await own().events.query({ order: "desc", limit: 1 }).page()).data[0]!.sequence);
    const copied = () => placesOf(linesOf(globSync(`${directory}/copies/*.jsonl`)));
    const stored = () => placesOf(linesOf(globSync(`${s3.directory}/audit/*/*_object`)));
    for (const pass of [1, 2]) {
      await own().events.log({ type: "COPIED", data: { pass } });
      await group.end(MASTER, pass === 1 ? "SIGKILL" : "SIGTERM");
      await group.start(MASTER);
      await group.leader();
    }
    await eventually(async () => {
      const end = await last();
      return copied().includes(end) && stored().includes(end);
    });
    const all = Array.from({ length: (await last()) + 1 }, (_, at) => at);
    expect(copied()).toEqual(all);
    expect([...new Set(stored())].sort((a, b) => a - b)).toEqual(all);
    const reply = await group.request(MASTER, "GET", "/metrics");
    const metrics = await reply.text();
    expect(metrics).toMatch(/heddle_events_sink_failed_total\{sink="nats:[^}]*\} [1-9]/);
    expect(metrics).toMatch(/heddle_events_sink_failed_total\{sink="file:[^}]*\} 0/);
  });
});
