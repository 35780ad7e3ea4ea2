// holds: events-derived, events-one-per-call

import { expect, test } from "vitest";
import { BINDS_ROLES, RECORDS_EVENTS } from "../cluster-version.ts";
import type { ControlCommand } from "../command.ts";
import { type LogCommand, ReplicatedControl } from "../replicated-control.ts";
import type { ApiKeyRecord } from "../state.ts";
import { newestControl } from "../testing/newest-control.ts";
import { cloudEvent } from "./cloud-event.ts";
import type { AuditContext, AuditRecord, ClientEvent } from "./records.ts";
import { type NewSubject, newSubjects } from "./subject-keys.ts";

const ORIGIN = "heddle/events/c1";
const AUDIT: AuditContext = {
  user: "key:abcd1234",
  project: "vision",
  session: "s1",
  request: "req_1",
  address: "127.0.0.1",
  route: "PUT /api/v1/cluster/settings/{name}",
};
const KEY: ApiKeyRecord = {
  id: "abcd1234",
  name: "nightly",
  hash: "f".repeat(64),
  scopes: ["jobs:read"],
  models: [],
  limits: {},
  project: "vision",
  createdAtMs: 5,
};
const setting: ControlCommand = {
  type: "setting.put",
  atMs: 1_000,
  name: "max_concurrent_jobs",
  value: 7,
};
const record: AuditRecord = {
  ...AUDIT,
  atMs: 900,
  kind: "access",
  subject: "models/demo",
  status: 200,
};

/** In place of encryption, which is not of this library. */
const written = (members: object, role: string, key: string) =>
  `${role} ${key} ${JSON.stringify(members)}`;

/** Applies entries, and returns the texts of their events. */
function textsOf(control: ReplicatedControl, entries: readonly LogCommand[]): string[] {
  return entries.flatMap((entry) => {
    const index = control.index + 1;
    control.apply(entry, index);
    const first = control.eventCount - control.derived.length;
    return control.derived.map((event, ordinal) => {
      const recordedMs = control.logTimeMs;
      const sequence = first + ordinal;
      const place = { index, ordinal, sequence, recordedMs, origin: ORIGIN, seal: written };
      return cloudEvent(event, place);
    });
  });
}

const entry = (command: ControlCommand, audit?: AuditContext): LogCommand =>
  ({ type: "control", command, audit }) as LogCommand;
const records = (number: number, some: readonly AuditRecord[], dropped?: number) =>
  entry({
    type: "audit.record",
    atMs: 1_000,
    master: "m1",
    batch: { process: "p1", number },
    records: some,
    dropped,
  });

test("events: the text of a change's event never changes", () => {
  const control = new ReplicatedControl();
  control.state.cluster.set("version", RECORDS_EVENTS);
  expect(textsOf(control, [entry(setting, AUDIT)])).toEqual([
    '{"specversion":"1.0","id":"1.0","source":"//heddle/events/c1","type":"SETTING_CHANGE","subject":"settings/max_concurrent_jobs","time":"1970-01-01T00:00:01.000Z","datacontenttype":"application/json","sequence":"0","recordedtime":"1970-01-01T00:00:01.000Z","result":"success","userid":"key:abcd1234","sessionid":"s1","requestid":"req_1","clientaddress":"127.0.0.1","data":{"route":"PUT /api/v1/cluster/settings/{name}","value":7}}',
  ]);
});

test("events: two masters derive the same, also after a snapshot", async () => {
  const entries = [
    entry({ type: "key.create", atMs: 1, key: KEY }, AUDIT),
    entry(setting),
    records(1, [record, { ...record, kind: "denied", status: 403 }]),
    entry({ type: "key.revoke", atMs: 3, id: KEY.id }, AUDIT),
  ];
  const [one, other] = [newestControl(), newestControl()];
  const texts = textsOf(one, entries);
  const head = textsOf(other, entries.slice(0, 2));
  const restored = newestControl();
  await restored.restore(other.snapshot());
  expect([...head, ...textsOf(restored, entries.slice(2))]).toEqual(texts);
  expect([restored.eventCount, restored.hash]).toEqual([texts.length, one.hash]);
});

test("events: a refused change has an event of the call, and none without one", () => {
  const refused: ControlCommand = { ...setting, value: -1 };
  const [text] = textsOf(newestControl(), [entry(refused), entry(refused, AUDIT)]);
  expect(JSON.parse(text ?? "")).toMatchObject({
    result: "refused",
    requestid: "req_1",
    project: "vision",
    data: { code: "invalid_value" },
  });
});

test("events: a repeated request has one of its own, not of what it made before", () => {
  const idempotency = { id: "caller01:1", fingerprint: "0".repeat(64), answer: "{}" };
  const command: ControlCommand = { type: "key.create", atMs: 1, key: KEY };
  const first = { type: "control", command, idempotency, audit: AUDIT } as const;
  const again = { ...first, audit: { ...AUDIT, request: "req_2" } };
  const events = textsOf(newestControl(), [first, again]).map((text) => JSON.parse(text));
  expect(events).toMatchObject([
    { type: "KEY_CREATE", requestid: "req_1" },
    { type: "API_CALL", requestid: "req_2", data: { repeated: true } },
  ]);
});

test("events: recorded calls are applied once, and dropped ones are counted", () => {
  const control = newestControl();
  const entries = [records(1, [record], 3), records(1, [record], 3), records(2, [record])];
  const events = textsOf(control, entries).map((text) => JSON.parse(text));
  expect(events).toMatchObject([
    { type: "DATA_ACCESS", time: "1970-01-01T00:00:00.900Z", subject: "models/demo" },
    { type: "EVENTS_DROPPED", subject: "masters/m1", data: { dropped: 3 } },
    { type: "DATA_ACCESS", sequence: "2" },
  ]);
  const many = records(3, new Array(257).fill(record));
  expect(control.apply(many, 9)).toMatchObject({ ok: false, code: "invalid_value" });
});

test("events: those of a project's model and webhook name the project", () => {
  const model = {
    id: "m",
    family: "f",
    contextWindow: 1,
    availability: "a",
    intendedUse: "i",
    ownedBy: "o",
    capabilities: [],
    createdAtMs: 1,
    deployment: "d",
    backing: "b",
    standIn: false,
    project: "speech",
  };
  const weights = { key: "w", file: "w.gguf", sources: [] };
  const deployment = {
    replicas: 1,
    spec: { key: "d", engine: "llama" as const, weights, options: {} },
  };
  const url = "https://hook.example/";
  const webhook = { url, project: "speech", secret: "new", types: [], createdAtMs: 1 } as never;
  const texts = textsOf(newestControl(), [
    entry({ type: "model.register", atMs: 1, model, deployment }, AUDIT),
    entry({ type: "deployment.configure", atMs: 1, deployment: "d", replicas: 2 }, AUDIT),
    entry({ type: "model.remove", atMs: 1, id: "m", project: "speech" }, AUDIT),
    entry({ type: "webhook.set", atMs: 1, id: "w1", webhook }, AUDIT),
    entry({ type: "webhook.remove", atMs: 1, id: "w1" }, AUDIT),
  ]);
  expect(texts.map((text) => JSON.parse(text))).toMatchObject([
    { type: "MODEL_DEPLOYMENT", project: "speech" },
    { type: "MODEL_SCALING", project: "speech" },
    { type: "MODEL_REMOVAL", project: "speech" },
    { type: "WEBHOOK_CHANGE", project: "speech" },
    { type: "WEBHOOK_CHANGE", project: "speech", data: { removed: true } },
  ]);
});

test("events: no hash of a key and no secret is in one", () => {
  const texts = textsOf(newestControl(), [
    entry({ type: "key.create", atMs: 1, key: KEY }, AUDIT),
    { type: "secret.keep", atMs: 1, name: "pepper", value: "swordfish" },
    entry({
      type: "join.create",
      atMs: 1,
      id: "e".repeat(64),
      join: { role: "worker", name: "w1", expiresAtMs: 9_000 },
    }),
  ]).join("\n");
  expect(texts).toContain("JOIN_TOKEN_CREATE");
  for (const secret of [KEY.hash, "swordfish", "e".repeat(64)]) expect(texts).not.toContain(secret);
});

test("events: there are none before their cluster version, and then they begin at 0", () => {
  const control = new ReplicatedControl();
  control.apply({ type: "version.raise", atMs: 0, version: BINDS_ROLES }, 1);
  expect(textsOf(control, [entry(setting)])).toEqual([]);
  expect(() => control.apply(records(1, []), 3)).toThrow(/does not know/);
  const raise = { type: "version.raise", atMs: 5, version: RECORDS_EVENTS } as const;
  const [text] = textsOf(control, [raise]);
  expect(JSON.parse(text ?? "")).toMatchObject({ type: "CLUSTER_UPGRADE", sequence: "0" });
});

test("events: a checkpoint covers as many as there are at most, and never fewer", () => {
  const control = newestControl();
  textsOf(control, [entry(setting), entry(setting)]);
  const checkpoint = (size: number) =>
    control.apply(
      entry({ type: "events.checkpoint", atMs: 1, size, note: `${ORIGIN}\n${size}\nroot\n` }),
      control.index + 1,
    );
  expect(checkpoint(3)).toMatchObject({ code: "conflict" });
  expect(checkpoint(2)).toEqual({ ok: true });
  expect(checkpoint(1)).toMatchObject({ code: "conflict" });
});

const ALICE: ClientEvent = {
  type: "VISIT",
  source: "urn:lab",
  id: "v1",
  subject: "VISIT",
  project: "vision",
  data: { ward: 7 },
  tags: [],
  actor: "alice",
  session: "s2",
};
const logged = (event: ClientEvent, subjects: readonly NewSubject[] = []): LogCommand => ({
  type: "control",
  command: {
    type: "events.log",
    atMs: 1_000,
    event,
    name: event.id.padEnd(64, "0"),
    fingerprint: "f".repeat(64),
    expected: "any",
  },
  audit: AUDIT,
  subjects,
});
const KEYS = [
  { subject: "alice", id: "00000000000000a1", key: "alice-key" },
  { subject: "key:abcd1234", id: "00000000000000b2", key: "caller-key" },
];
const shred = (subject: string, id: string) =>
  entry({ type: "events.shred", atMs: 1_000, subject, id });

// holds: events-shredded
test("subjects: personal data are encrypted, and the text never changes", () => {
  expect(textsOf(newestControl(), [logged(ALICE, KEYS)])).toEqual([
    '{"specversion":"1.0","id":"v1","source":"urn:lab","type":"VISIT","subject":"VISIT","time":"1970-01-01T00:00:01.000Z","datacontenttype":"application/json","sequence":"0","recordedtime":"1970-01-01T00:00:01.000Z","project":"vision","result":"success","requestid":"req_1","callerkey":"00000000000000b2","callerdata":"caller caller-key {\\"userid\\":\\"key:abcd1234\\",\\"sessionid\\":\\"s1\\",\\"clientaddress\\":\\"127.0.0.1\\"}","actorkey":"00000000000000a1","actordata":"actor alice-key {\\"actorid\\":\\"alice\\",\\"sessionid\\":\\"s2\\",\\"data\\":{\\"ward\\":7}}","data":{}}',
  ]);
});

test("subjects: the first key given is the one, also in a snapshot", async () => {
  const [one, other] = [newestControl(), newestControl()];
  const later = KEYS.map((key) => ({ ...key, id: `${key.id}x`, key: "later" }));
  const entries = [logged(ALICE, KEYS), logged({ ...ALICE, id: "v2" }, later)];
  expect(textsOf(one, entries).join()).not.toContain("later");
  expect(newSubjects(one.state, { ...setting }, AUDIT)).toEqual([]);
  expect(newSubjects(newestControl().state, setting, AUDIT)).toEqual(["key:abcd1234"]);
  await other.restore(one.snapshot());
  expect(other.hash).toBe(one.hash);
  expect(textsOf(other, [logged({ ...ALICE, id: "v3" })])[0]).toContain("alice-key");
});

test("subjects: a removed key is nowhere in the state, and a later event has another", () => {
  const control = newestControl();
  textsOf(control, [logged(ALICE, KEYS)]);
  expect(control.apply(shred("alice", "other"), 2)).toMatchObject({ code: "not_found" });
  expect(control.apply(shred("bob", "00000000000000a1"), 2)).toMatchObject({ code: "not_found" });
  const [text = ""] = textsOf(control, [shred("alice", "00000000000000a1")]);
  expect(JSON.parse(text)).toMatchObject({
    type: "SUBJECT_SHRED",
    subject: "subject-keys/00000000000000a1",
  });
  expect(text).not.toContain("alice");
  expect([...control.snapshot()].join()).not.toMatch(/alice/);
  const [withheld = ""] = textsOf(control, [logged({ ...ALICE, id: "v2" })]);
  expect(JSON.parse(withheld)).toMatchObject({ actorkey: "none", data: {} });
  expect(withheld).not.toMatch(/alice|ward/);
  const again = [{ ...KEYS[0]!, id: "00000000000000c3", key: "new" }];
  expect(textsOf(control, [logged({ ...ALICE, id: "v3" }, again)])[0]).toContain("actor new ");
});

test("subjects: beyond 50,000 they share one key, which is not removed", () => {
  const control = newestControl();
  for (let at = 0; at < 50_000; at++) control.state.subjects.set(`s${at}`, String(at));
  const command = { type: "setting.put", atMs: 1, name: "job_timeout", value: 60 } as const;
  expect(newSubjects(control.state, command, AUDIT)).toEqual([""]);
  const shared = [{ subject: "", id: "00000000000000d4", key: "shared" }];
  const [text = ""] = textsOf(control, [logged(ALICE, shared)]);
  expect(JSON.parse(text)).toMatchObject({ callerkey: shared[0]!.id, actorkey: shared[0]!.id });
  expect(control.apply(shred("", shared[0]!.id), 2)).toMatchObject({ code: "not_found" });
});

test("subjects: there are no keys before their cluster version", () => {
  const control = new ReplicatedControl();
  control.state.cluster.set("version", RECORDS_EVENTS);
  expect(newSubjects(control.state, setting, AUDIT)).toEqual([]);
  expect(textsOf(control, [logged(ALICE, KEYS)])[0]).toContain('"actorid":"alice"');
  expect(control.state.subjectKeys.size).toBe(0);
});

test("events: only signed ones are removed, the oldest first, and an event says which", () => {
  const control = newestControl();
  textsOf(control, [entry(setting), entry(setting), entry(setting)]);
  const note = `${ORIGIN}\n2\nroot\n`;
  textsOf(control, [entry({ type: "events.checkpoint", atMs: 1, size: 2, note })]);
  const remove = (first: number, end: number) =>
    entry({ type: "events.remove", atMs: 1, first, end });
  for (const [first, end] of [
    [0, 3],
    [1, 2],
    [0, 0],
  ] as const) {
    const reply = control.apply(remove(first, end), control.index + 1);
    expect(reply, `${first} to ${end}`).toMatchObject({ ok: false, code: "conflict" });
  }
  const [text = ""] = textsOf(control, [remove(0, 2)]);
  expect(JSON.parse(text)).toMatchObject({
    type: "EVENTS_REMOVED",
    data: { first: 0, end: 2, events: 2 },
  });
  expect(control.state.cluster.get("firstEvent")).toBe(2);
  control.beginEvents();
  expect(control.state.cluster.get("firstEvent")).toBeUndefined();
});

test("events: the place of a sink never goes back, and few are kept", () => {
  const control = newestControl();
  textsOf(control, new Array(100).fill(entry(setting)));
  const sink = (at: number) => at.toString(16).padStart(16, "0");
  const sent = (id: string, next: number) =>
    control.apply(entry({ type: "events.sent", atMs: 1, sink: id, next }), control.index + 1);
  expect(sent(sink(0), 7)).toEqual({ ok: true });
  expect(sent(sink(0), 6)).toMatchObject({ code: "conflict" });
  expect(sent(sink(0), 101)).toMatchObject({ code: "invalid_value" });
  expect(sent("x", 1)).toMatchObject({ code: "invalid_value" });
  for (let at = 1; at <= 64; at++) expect(sent(sink(at), 7 + at)).toEqual({ ok: true });
  const kept = [...control.state.cluster.keys()].filter((name) => name.startsWith("sink:"));
  expect(kept).toHaveLength(64);
  expect(kept).not.toContain(`sink:${sink(0)}`);
  expect(control.eventCount).toBe(100);
  control.beginEvents();
  expect([...control.state.cluster.keys()].join()).not.toContain("sink:");
});
