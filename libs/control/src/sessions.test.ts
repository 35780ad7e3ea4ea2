import { expect, test } from "vitest";
import { ReplicatedControl } from "./replicated-control.ts";

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
    ...{ id, name: "k", hash: "0".repeat(64), scopes: [], models: [], limits: {} },
    createdAtMs: atMs,
  };
  const command = { type: "key.create" as const, atMs, key };
  return control.apply({ type: "control", command, session: { client, sequence } }, 1);
}

test("a request that comes again gets its first reply and changes nothing", () => {
  const control = new ReplicatedControl();
  open(control);
  expect(createKey(control, 1)).toEqual({ ok: true });
  expect(createKey(control, 1)).toEqual({ ok: true });
  expect(createKey(control, 2)).toMatchObject({ ok: false, code: "conflict" });
  expect(remove(control, 3)).toMatchObject({ code: "not_found" });
  expect(control.state.keys.size).toBe(1);
});

test("requests may arrive out of order, and a refusal is remembered too", () => {
  const control = new ReplicatedControl();
  open(control);
  expect(createKey(control, 2)).toEqual({ ok: true });
  expect(remove(control, 1)).toMatchObject({ code: "not_found" });
  expect(remove(control, 1)).toMatchObject({ code: "not_found" });
});

test("a request so old that its reply is forgotten is refused, not applied again", () => {
  const control = new ReplicatedControl();
  open(control);
  for (let sequence = 1; sequence <= 20; sequence++) remove(control, sequence);
  expect(remove(control, 1)).toMatchObject({ code: "conflict" });
  expect(remove(control, 20)).toMatchObject({ code: "not_found" });
});

test("a session ends an hour after its last use, by the time in the log", () => {
  const control = new ReplicatedControl();
  open(control);
  expect(createKey(control, 1, HOUR_MS)).toEqual({ ok: true });
  expect(remove(control, 2, 2 * HOUR_MS)).toMatchObject({ code: "not_found" });
  expect(remove(control, 3, 3 * HOUR_MS + 1)).toMatchObject({ code: "conflict" });
  expect(createKey(control, 1, 0)).toMatchObject({ code: "conflict" });
  expect(control.state.keys.size).toBe(1);
});

test("a proposer's clock that is behind does not turn the log's time back", () => {
  const control = new ReplicatedControl();
  open(control, 10 * HOUR_MS);
  open(control, 0, "client-0002");
  expect(remove(control, 1, 0)).toMatchObject({ code: "not_found" });
});
