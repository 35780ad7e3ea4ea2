// holds: state-exactly-once

import { expect, test } from "vitest";
import { ReplicatedControl } from "./replicated-control.ts";
import { NO_SESSIONS_FROM } from "./sessions.ts";

const HOUR_MS = 3_600_000;
const client = "client-0001";

function open(control: ReplicatedControl, atMs = 0, who = client) {
  return control.apply({ type: "session.open", atMs, client: who }, 1);
}

function remove(control: ReplicatedControl, sequence: number, atMs = 0, id = "gone") {
  const command = { type: "model.remove" as const, atMs, id };
  return control.apply({ type: "control", command, session: { client, sequence } }, 1);
}

function createKey(control: ReplicatedControl, sequence: number, atMs = 0, id = "abcd1234") {
  const key = {
    id,
    name: "k",
    hash: "0".repeat(64),
    scopes: [],
    models: [],
    limits: {},
    createdAtMs: atMs,
  };
  const command = { type: "key.create" as const, atMs, key };
  return control.apply({ type: "control", command, session: { client, sequence } }, 1);
}

test("session: a repeated request gets its first reply and changes nothing", () => {
  const control = new ReplicatedControl();
  open(control);
  expect(createKey(control, 1)).toEqual({ ok: true });
  expect(createKey(control, 1)).toEqual({ ok: true });
  expect(createKey(control, 2)).toMatchObject({ ok: false, code: "conflict" });
  expect(remove(control, 3)).toMatchObject({ code: "not_found" });
  expect(control.state.keys.size).toBe(1);
});

test("session: requests may arrive out of order, and refusals are kept too", () => {
  const control = new ReplicatedControl();
  open(control);
  expect(createKey(control, 2)).toEqual({ ok: true });
  expect(remove(control, 1)).toMatchObject({ code: "not_found" });
  expect(remove(control, 1)).toMatchObject({ code: "not_found" });
});

test("session: a request whose reply was dropped is refused, not applied again", () => {
  const control = new ReplicatedControl();
  open(control);
  for (let sequence = 1; sequence <= 20; sequence++) remove(control, sequence);
  expect(remove(control, 1)).toMatchObject({ code: "conflict" });
  expect(remove(control, 20)).toMatchObject({ code: "not_found" });
});

test("session: a request overtaken by all its successors is applied once", () => {
  const control = new ReplicatedControl();
  open(control);
  const slow = [3, 15];
  for (let sequence = 1; sequence <= 64; sequence++) {
    if (!slow.includes(sequence)) remove(control, sequence);
  }
  for (const sequence of slow) {
    const id = `abcd12${10 + sequence}`;
    expect(createKey(control, sequence, 0, id)).toEqual({ ok: true });
    expect(createKey(control, sequence, 0, id)).toEqual({ ok: true });
    expect(control.state.keys.has(id)).toBe(true);
  }
  for (let sequence = 65; sequence <= 90; sequence++) remove(control, sequence);
  for (const sequence of [...slow, 4]) {
    expect(createKey(control, sequence)).toMatchObject({ code: "conflict" });
  }
  expect(control.state.keys.size).toBe(2);
});

test("session: remembers only as many gaps as requests may be in flight", () => {
  const control = new ReplicatedControl();
  open(control);
  remove(control, 10 ** 9);
  for (let at = 1; at <= 16; at++) remove(control, 10 ** 9 + at);
  expect(createKey(control, 10 ** 9 - 17)).toMatchObject({
    code: "conflict",
    message: expect.stringContaining(
      "is too old: it was answered, and its reply is forgotten, or 16",
    ),
  });
  expect(createKey(control, 10 ** 9 - 16)).toEqual({ ok: true });
});

test("session: ends an hour after its last use, by the log's time", () => {
  const control = new ReplicatedControl();
  open(control);
  expect(createKey(control, 1, HOUR_MS)).toEqual({ ok: true });
  expect(remove(control, 2, 2 * HOUR_MS)).toMatchObject({ code: "not_found" });
  expect(remove(control, 3, 3 * HOUR_MS + 1)).toMatchObject({ code: "conflict" });
  expect(createKey(control, 1, 0)).toMatchObject({ code: "conflict" });
  expect(control.state.keys.size).toBe(1);
});

test("session: a proposer's slow clock does not decrease the log's time", () => {
  const control = new ReplicatedControl();
  open(control, 10 * HOUR_MS);
  open(control, 0, "client-0002");
  expect(remove(control, 1, 0)).toMatchObject({ code: "not_found" });
});

test("session: from the version without them on, an entry of one stops the master", () => {
  const control = new ReplicatedControl();
  open(control);
  createKey(control, 1);
  control.apply({ type: "version.raise", atMs: 0, version: NO_SESSIONS_FROM }, 1);
  expect(() => open(control)).toThrow(/does not know the log entry "session.open"/);
  expect(() => remove(control, 2)).toThrow(/does not know the log entry "control.session"/);
});
