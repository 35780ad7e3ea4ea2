// holds: events-webhooks, events-audit-sync, events-signed, events-logged-once, events-projects, events-changed-byte
// holds: events-witnesses, events-one-per-call, events-no-gap, events-fetched, events-follow, events-search

import { createHmac, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createApiKey } from "@heddle/auth/api-key";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { Heddle } from "@heddle/client/heddle";
import { readServerSentEvents, SILENCE_MS } from "@heddle/client/server-sent-events";
import type { LogEvent } from "@heddle/contracts/api/events/log";
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
import { agreedEventLog, eventLog, eventPage } from "../../../test/events/event-log-pages.ts";
import { eventWitness } from "../../../test/events/event-witness.ts";
import { MasterGroup } from "../../../test/master-group.ts";

// The event log of three masters as processes, with a scripted dispatch.

const NAMES = ["master-1", "master-2", "master-3"] as const;
const [FIRST, SECOND, THIRD] = NAMES;
/** Well-formed, of no cluster. */
const NO_KEY = createApiKey("test").text;
const CHAT = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "Hi" }] };

const WITNESS_KEYS = ["one", "two"].map((name) => eventWitness(`${name}.example`));

let group: MasterGroup;

beforeAll(async () => {
  const flags = ["--snapshot-entries", "40", "--webhook-hosts", "127.0.0.1"];
  flags.push("--event-witnesses", WITNESS_KEYS.map(({ key }) => key).join(","));
  const sync = { env: { HEDDLE_AUDIT_MODE: "sync" } };
  group = new MasterGroup(3, flags, (name) => (name === THIRD ? sync : {}));
  await group.startAll();
  await group.leader();
  await eventually(async () => (await all(FIRST)).length > 0);
});
afterAll(() => group?.close());

const onMaster = (name: string, key = group.adminKey) =>
  new Heddle({ endpoint: group.url(name)!, auth_token: key });

const page = (name: string, query: string) => eventPage(group, name, query);
const all = (name: string, query?: string) => eventLog(group, name, query);
const agreed = (names: readonly string[] = NAMES) => agreedEventLog(group, names);

function expectNoGap(log: readonly LogEvent[]): void {
  expect(log.map(({ sequence }) => Number(sequence))).toEqual(log.map((_, at) => at));
  expect(new Set(log.map(({ id }) => id)).size).toBe(log.length);
}

/** The message that it throws; empty where it throws none. */
function thrownBy(run: () => void): string {
  try {
    run();
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

interface Made {
  readonly id: string;
  readonly type: string;
  readonly result: string;
}

/** Makes a call whose request id is known. */
async function call(
  name: string,
  [method, path, body]: readonly [string, string, unknown?],
  expected: Omit<Made, "id">,
  key = group.adminKey,
): Promise<Made> {
  const id = `test-${randomUUID()}`;
  const headers = {
    "x-request-id": id,
    "x-session-id": "session-1",
    "x-compliance-level": "high",
    "x-event-tags": "call, team=a,no tag",
  };
  const reply = await group.request(name, method, path, body, key, headers);
  await reply.text();
  return { id, ...expected };
}

describe("event log of three masters", () => {
  it("each mutating, denied and inference call has one event, the same on all", async () => {
    const { key } = await group.createKey(FIRST, "reader");
    const setting = ["PUT", "/api/v1/cluster/settings/max_concurrent_jobs", { value: 7 }] as const;
    const job = { name: "j", command: ["true"], resources: { gpu_count: 0 } };
    const made = [
      await call(FIRST, setting, { type: "SETTING_CHANGE", result: "success" }),
      await call(SECOND, ["POST", "/api/v1/keys", { name: "x" }], {
        type: "KEY_CREATE",
        result: "success",
      }),
      await call(THIRD, ["POST", "/api/v1/jobs", job], { type: "JOB_SUBMIT", result: "success" }),
      await call(FIRST, ["POST", "/api/v1/chat/completions", CHAT], {
        type: "DATA_ACCESS",
        result: "success",
      }),
      await call(SECOND, ["POST", "/api/v1/chat/completions", { ...CHAT, model: "none" }], {
        type: "DATA_ACCESS",
        result: "refused",
      }),
      await call(THIRD, ["POST", "/api/v1/cluster/snapshot"], {
        type: "API_CALL",
        result: "success",
      }),
      await call(FIRST, setting, { type: "ACCESS_DENIED", result: "denied" }, key),
      await call(FIRST, ["GET", "/api/v1/keys"], { type: "ACCESS_DENIED", result: "denied" }, "no"),
      await call(SECOND, ["POST", "/api/v1/keys", { name: 4 }], {
        type: "API_CALL",
        result: "refused",
      }),
    ];
    const seen = (log: readonly LogEvent[]) =>
      made.map(({ id }) => log.filter(({ requestid }) => requestid === id));
    await eventually(async () => seen(await all(FIRST)).every(({ length }) => length > 0));
    const log = await agreed();
    expectNoGap(log);
    for (const [at, events] of seen(log).entries()) {
      const { id, ...expected } = made[at]!;
      expect(events, id).toMatchObject([
        { ...expected, sessionid: "session-1", compliancelevel: "high", tags: "call,team=a" },
      ]);
      expect(events[0]?.clientaddress).toMatch(/127\.0\.0\.1$/);
    }
    const users = seen(log).map(([event]) => event?.userid?.startsWith("key:") ?? false);
    expect(users).toEqual([true, true, true, true, true, true, true, false, true]);
    const chat = seen(log)[3]?.[0];
    expect(chat).toMatchObject({ subject: `models/${CHAT.model}`, project: "default" });
    expect(JSON.stringify(log)).not.toContain(group.adminKey);
    expect(JSON.stringify(log)).not.toContain(key);
  });

  it("names the service account whose key made a call, and the key", async () => {
    const ask = async (method: string, path: string, body: object, key = group.adminKey) => {
      const reply = await group.request(FIRST, method, `/api/v1/${path}`, body, key);
      return { made: (await reply.json()) as { id: string; key: string }, status: reply.status };
    };
    await ask("PUT", "service-accounts/ci", {});
    const spec = { name: "of-ci", service_account: "ci", scopes: ["jobs:create"] };
    const { made } = await ask("POST", "keys", spec);
    const job = { name: "of-ci", command: "true" };
    expect((await ask("POST", "jobs", job, made.key)).status).toBe(202);
    const named = { type: "JOB_SUBMIT", userid: "service:ci", keyid: made.id };
    await eventually(async () => (await all(FIRST, "user=service:ci")).length > 0);
    for (const user of ["service:ci", `key:${made.id}`]) {
      expect(await all(FIRST, `user=${user}`), user).toMatchObject([named]);
    }
  });

  it("is searched by type, subject, time, order and page", async () => {
    const log = await agreed();
    const types = await all(FIRST, "type=KEY_CREATE,SETTING_CHANGE");
    expect(new Set(types.map(({ type }) => type))).toEqual(
      new Set(["KEY_CREATE", "SETTING_CHANGE"]),
    );
    const models = await all(SECOND, "subject=models/*");
    expect(models.map(({ sequence }) => sequence)).toEqual(
      log.filter(({ subject }) => subject.startsWith("models/")).map(({ sequence }) => sequence),
    );
    const middle = log[Math.floor(log.length / 2)]!.recordedtime;
    const late = await all(THIRD, `since=${middle}`);
    const early = await all(THIRD, `until=${middle}`);
    expect([...early, ...late]).toEqual(log);
    const newest = await page(FIRST, "order=desc");
    expect(newest.data).toEqual([...log].reverse().slice(0, newest.data.length));
    const refused = await group.request(FIRST, "GET", "/api/v1/events/log?since=yesterday");
    expect(refused.status).toBe(400);
  });

  it("streams continue at another master, without gap or repeat", async () => {
    const start = (await agreed()).length;
    const received: LogEvent[] = [];
    let [last, at] = [String(start - 1), 0];
    const isDone = () => received.at(-1)?.subject === "settings/job_timeout";
    const changes = held(
      (async () => {
        for (let value = 1; value <= 30; value++) {
          const path = "/api/v1/cluster/settings/max_concurrent_jobs";
          await group.change(NAMES[value % 3]!, "PUT", path, { value });
        }
        await group.change(FIRST, "PUT", "/api/v1/cluster/settings/job_timeout", { value: 9_999 });
      })(),
    );
    while (!isDone()) {
      const hangUp = new AbortController();
      const reply = await fetch(`${group.url(NAMES[at++ % 3]!)}/api/v1/events/log`, {
        headers: {
          authorization: `Bearer ${group.adminKey}`,
          accept: "text/event-stream",
          "last-event-id": last,
        },
        signal: hangUp.signal,
      });
      expect(reply.status).toBe(200);
      let taken = 0;
      for await (const { id, data } of readServerSentEvents(reply.body!, SILENCE_MS)) {
        last = id ?? last;
        if (data === "") continue;
        received.push(JSON.parse(data) as LogEvent);
        if (++taken === 7 || isDone()) break;
      }
      hangUp.abort();
    }
    await changes;
    const log = await agreed();
    expect(received).toEqual(log.slice(start, start + received.length));
  });

  it("clients log events once, with the revision that they expect", async () => {
    const named = { type: "MODEL_TRAINING_START", source: "urn:lab", id: "run-1" };
    const audit = { user_id: "alice", compliance_level: "high" };
    const event = { ...named, data: { run: 1 }, tags: ["gdpr"], audit, stream: "runs" };
    const first = await onMaster(FIRST).events.log({ ...event, expected_revision: "none" });
    expect(first).toMatchObject({ id: "run-1", revision: 0, repeated: false });
    const again = await onMaster(SECOND).events.log({ ...event, expected_revision: "none" });
    expect(again).toMatchObject({ revision: 0, repeated: true });
    const other = onMaster(THIRD).events.log({ ...event, data: { run: 2 } });
    await expect(other).rejects.toMatchObject({ status: 409 });
    const next = { ...event, id: "run-2", expected_revision: 1 };
    await expect(onMaster(THIRD).events.log(next)).rejects.toMatchObject({ status: 412 });
    const made = await onMaster(THIRD).events.log({ ...next, expected_revision: 0 });
    expect(made.revision).toBe(1);
    const unnamed = await onMaster(FIRST).events.log({ type: "X", id: "x-1" });
    expect(unnamed.source).toMatch(/^\/\/heddle\/keys\/\w+$/);
    // Another caller's source would take the ids of its events.
    const others = [
      `${unnamed.source}x`,
      "//heddle/users/alice",
      "//heddle/events/c",
      "//HEDDLE/x",
    ];
    for (const source of others) {
      const logged = onMaster(FIRST).events.log({ type: "X", source });
      await expect(logged, source).rejects.toMatchObject({ status: 400 });
    }
    const log = await agreed();
    const logged = log.filter(({ source }) => source === "urn:lab");
    expect(logged).toMatchObject([
      { id: "run-1", revision: "0", tags: "gdpr", actorid: "alice", compliancelevel: "high" },
      { id: "run-2", revision: "1", userid: expect.stringMatching(/^key:/), project: "default" },
    ]);
    expect((await all(SECOND, "tag=gdpr")).map(({ id }) => id)).toEqual(["run-1", "run-2"]);
  });

  it("keys are known to every master as soon as one has answered", async () => {
    for (let at = 0; at < 30; at++) {
      const { key } = await group.createKey(NAMES[at % 3]!, `new-${at}`);
      const others = NAMES.filter((_, place) => place !== at % 3);
      const replies = await Promise.all(
        others.map((name) => group.request(name, "GET", "/api/v1/models", undefined, key)),
      );
      expect(replies.map(({ status }) => status)).toEqual([200, 200]);
      await Promise.all(replies.map((reply) => reply.text()));
    }
    const unknown = await group.request(THIRD, "GET", "/api/v1/models", undefined, NO_KEY);
    expect(unknown.status).toBe(401);
  });

  it("shows the events of a project to its callers alone", async () => {
    const inProject = async (project: string) => {
      const body = { name: project, role: "operator", project };
      const reply = await group.change(FIRST, "POST", "/api/v1/keys", body);
      const { key } = (await reply.json()) as { key: string };
      return onMaster(SECOND, key).events;
    };
    const [blue, red] = [await inProject("blue"), await inProject("red")];
    await blue.log({ type: "BLUE", id: "b1" });
    await red.log({ type: "RED", id: "r1" });
    const log = await agreed();
    const seen: LogEvent[] = [];
    for await (const event of blue.query()) seen.push(event);
    expect(seen.map(({ type }) => type)).toContain("BLUE");
    expect(new Set(seen.map(({ project }) => project))).toEqual(new Set(["blue"]));
    const hidden = log.find(({ type }) => type === "RED")!.sequence;
    await expect(blue.entry(hidden)).rejects.toMatchObject({ status: 404 });
    await expect(blue.proof(hidden)).rejects.toMatchObject({ status: 404 });
    await expect(blue.export()).rejects.toMatchObject({ status: 403 });
    const byProject = await all(FIRST, "project=red");
    expect(byProject.map(({ type }) => type)).toEqual(["KEY_CREATE", "RED"]);
  });

  it("is signed: proofs and exports verify, also after a new key", async () => {
    const { events } = onMaster(FIRST);
    const signed = async () => parseCheckpoint(parseNote(await events.checkpoint()).text).size;
    await eventually(async () => (await signed()) >= (await all(FIRST)).length);
    const before = await events.keys();
    const old = await signed();
    await onMaster(SECOND).events.rotateKey();
    await eventually(async () => (await signed()) > old);
    const { origin, keys } = await events.keys();
    expect(keys).toEqual([...before.keys, expect.any(String)]);
    const trustIn = (texts: readonly string[]) => ({ origin, keys: texts.map(parseVerifierKey) });
    const entry = await events.entry("3");
    const proofOf = async () => parseTlogProof(await onMaster(THIRD).events.proof("3"));
    // One checkpoint is signed by both keys, and each master comes to later ones in its own time.
    await eventually(async () => {
      await group.createKey(THIRD, "signed-by-the-new-key");
      const later = await proofOf();
      return /signature/.test(thrownBy(() => verifyTlogProof(later, entry, trustIn(before.keys))));
    }, "a proof is by the new key alone");
    const proof = await proofOf();
    verifyTlogProof(proof, entry, trustIn(keys.slice(1)));
    entry[20]! ^= 1;
    expect(() => verifyTlogProof(proof, entry, trustIn(keys))).toThrow(/was changed/);
    const { body } = await events.export({ since: old });
    const verified = await verifyExport(exportLinesOf(body!), trustIn(keys), []);
    expect(verified.faults).toEqual([]);
    expect(verified.end).toBeGreaterThan(old);
    const { hashes } = await events.consistency(old, verified.end);
    expect(hashes.length).toBeGreaterThan(0);
  });

  it("takes signatures of witnesses alone, of all of them, and exports by them", async () => {
    const { events } = onMaster(FIRST);
    await expect(events.checkpoint({ cosigned: true })).rejects.toMatchObject({ status: 404 });
    const text = await events.checkpoint();
    const note = parseNote(text);
    const { size } = parseCheckpoint(note.text);
    const [one, two] = WITNESS_KEYS.map(({ cosign }) => cosign(note.text)) as [string, string];
    const refusals = [
      [{ size, signatures: eventWitness("one.example").cosign(note.text) }, 403],
      [{ size, signatures: WITNESS_KEYS[0]!.cosign("other\n") }, 403],
      [{ size: size + 100_000, signatures: one }, 404],
      [{ size, signatures: "none" }, 400],
    ] as const;
    for (const [request, status] of refusals) {
      await expect(events.cosign(request)).rejects.toMatchObject({ status });
    }
    // At the same time on two masters: neither signature is lost.
    await Promise.all([
      events.cosign({ size, signatures: one }),
      onMaster(SECOND).events.cosign({ size, signatures: two }),
    ]);
    const third = onMaster(THIRD).events;
    const names = async () =>
      parseNote(await third.checkpoint({ cosigned: true })).signatures.map(({ name }) => name);
    await eventually(async () => (await names().catch(() => [])).length >= 3);
    expect((await names()).filter((name) => name.endsWith(".example")).sort()).toEqual([
      "one.example",
      "two.example",
    ]);
    const { origin, keys } = await events.keys();
    const all = [...keys, ...WITNESS_KEYS.map(({ key }) => key)].map(parseVerifierKey);
    const { body } = await third.export({ cosigned: true });
    const trust = { origin, keys: all, quorum: 2 };
    const verified = await verifyExport(exportLinesOf(body!), trust, []);
    expect(verified).toMatchObject({ faults: [], end: size });
    const newest = await third.export();
    const strict = await verifyExport(exportLinesOf(newest.body!), { ...trust, quorum: 3 }, []);
    expect(strict.faults).toMatchObject([{ message: expect.stringMatching(/it needs 1 and 3/) }]);
  });

  it("webhooks get each event, signed, also after a refusal and another leader", async () => {
    const taken = new Map<string, LogEvent>();
    let [secret, refusals] = ["", 1];
    const receiver = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8").on("data", (text) => {
        body += text;
      });
      request.on("end", () => {
        const { headers } = request;
        const [id, time] = [String(headers["webhook-id"]), String(headers["webhook-timestamp"])];
        const key = Buffer.from(secret.replace("whsec_", ""), "base64");
        const sum = createHmac("sha256", key).update(`${id}.${time}.${body}`).digest("base64");
        const isSigned = headers["webhook-signature"] === `v1,${sum}`;
        const isTaken = isSigned && refusals-- <= 0;
        if (isTaken) taken.set(id, JSON.parse(body));
        response.writeHead(isTaken ? 204 : 500).end();
      });
    });
    await once(receiver.listen(0, "127.0.0.1"), "listening");
    try {
      const { port } = receiver.address() as AddressInfo;
      const { webhooks } = onMaster(FIRST);
      for (const url of ["http://169.254.169.254/x", "https://10.0.0.1/x", "http://example.com"]) {
        await expect(webhooks.create({ url }), url).rejects.toMatchObject({ status: 400 });
      }
      const types = ["KEY_CREATE"];
      const created = await webhooks.create({ url: `http://127.0.0.1:${port}/hook`, types });
      secret = created.secret;
      expect(JSON.stringify(await webhooks.list())).not.toContain(secret);
      for (let i = 0; i < 5; i++) await group.createKey(NAMES[i % 3]!, `hooked-${i}`);
      await eventually(() => taken.size >= 4);
      const leader = await group.leader();
      await group.end(leader, "SIGKILL");
      const rest = NAMES.filter((name) => name !== leader);
      await group.createKey(rest[0]!, "hooked-5");
      const names = () => [...taken.values()].map(({ data }) => data["name"]).sort();
      await eventually(() => names().length === 6);
      expect(names()).toEqual([0, 1, 2, 3, 4, 5].map((number) => `hooked-${number}`));
      await group.start(leader);
      await onMaster(rest[0]!).webhooks.remove(created.id);
    } finally {
      receiver.close();
    }
  });

  it("kill -9 of all masters at once leaves no gap, and a replay repeats nothing", async () => {
    const before = await agreed();
    const writes = Array.from({ length: 60 }, (_, at) =>
      group
        .request(NAMES[at % 3]!, "POST", "/api/v1/keys", { name: `k${at}` })
        .then((reply) => reply.text())
        .catch(() => undefined),
    );
    await Promise.race(writes.slice(20));
    await Promise.all(NAMES.map((name) => group.end(name, "SIGKILL")));
    await Promise.all(writes);
    await group.startAll();
    await group.leader();
    const log = await agreed();
    expectNoGap(log);
    expect(log.slice(0, before.length)).toEqual(before);
    const names = log.flatMap(({ type, data }) => (type === "KEY_CREATE" ? [data["name"]] : []));
    const known = await group.keyNames(FIRST);
    const added = known.filter((name) => /^k\d+$/.test(name));
    expect(names.filter((name) => added.includes(String(name))).sort()).toEqual(added.sort());
  });

  it("in the mode sync a model is called only when that is committed", async () => {
    const path = "/api/v1/chat/completions";
    const made = await call(THIRD, ["POST", path, CHAT], {
      type: "DATA_ACCESS",
      result: "started",
    });
    const ofCall = async () => (await all(THIRD)).filter(({ requestid }) => requestid === made.id);
    expect(await ofCall()).toMatchObject([{ type: "DATA_ACCESS", result: "started" }]);
    await Promise.all([FIRST, SECOND].map((name) => group.end(name, "SIGKILL")));
    const refused = await group.request(THIRD, "POST", path, CHAT);
    expect(refused.status).toBe(503);
    await group.startMissing();
    expect(await ofCall()).toHaveLength(1);
  });

  it("a master that lost its events, or all, fetches them from the others", async () => {
    const before = await agreed();
    await group.end(THIRD, "SIGKILL");
    await group.change(FIRST, "POST", "/api/v1/cluster/snapshot");
    rmSync(join(group.directory(THIRD), "events"), { recursive: true });
    await group.start(THIRD);
    const log = await agreed();
    expectNoGap(log);
    expect(log.slice(0, before.length)).toEqual(before);
  });

  it("a changed byte in a master's files is found offline", async () => {
    const { origin, keys } = await onMaster(FIRST).events.keys();
    const trust = { origin, keys: keys.map(parseVerifierKey) };
    await group.end(SECOND, "SIGTERM");
    const folder = join(group.directory(SECOND), "events");
    const directory = join(folder, readdirSync(folder)[0]!);
    const place = { files: nodeStorageFiles, directory };
    expect((await verifyDirectory(place, trust, [])).faults).toEqual([]);
    const path = join(directory, readdirSync(directory).find((name) => name.endsWith("0.log"))!);
    const bytes = readFileSync(path);
    const at = bytes.indexOf("SETTING_CHANGE");
    bytes[at]! ^= 1;
    writeFileSync(path, bytes);
    expect((await verifyDirectory(place, trust, [])).faults).not.toEqual([]);
    await expect(group.start(SECOND)).rejects.toThrow(/damage/);
    rmSync(folder, { recursive: true });
    await group.start(SECOND);
    expectNoGap(await agreed());
  });
});
