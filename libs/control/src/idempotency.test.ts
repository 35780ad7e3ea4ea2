// holds: state-exactly-once, jobs-idempotency

import { expect, test } from "vitest";
import { ReplicatedControl } from "./replicated-control.ts";

const DAY_MS = 86_400_000;
const prints = { one: "1".repeat(64), two: "2".repeat(64) };

function put(
  control: ReplicatedControl,
  {
    id = "caller01:abc",
    fingerprint = prints.one,
    answer = "told",
    value = 5,
    atMs = 0,
    ifVersion = undefined as number | undefined,
  } = {},
) {
  const name = "max_concurrent_jobs";
  const command = { type: "setting.put" as const, atMs, name, value, ifVersion };
  return control.apply({ type: "control", command, idempotency: { id, fingerprint, answer } }, 1);
}

const setting = (control: ReplicatedControl) => control.state.settings.get("max_concurrent_jobs");

test("idempotency: a repeated request is not applied again and gets its first answer", () => {
  const control = new ReplicatedControl();
  expect(put(control)).toEqual({ ok: true, version: 1 });
  expect(put(control, { answer: "of the second attempt" })).toEqual({ ok: true, version: 1 });
  expect(setting(control)).toMatchObject({ version: 1 });
  expect(control.keptAnswer("caller01:abc")).toMatchObject({
    answer: "told",
    fingerprint: prints.one,
  });
});

test("idempotency: a refusal is kept like an answer", () => {
  const control = new ReplicatedControl();
  expect(put(control, { ifVersion: 3 })).toMatchObject({ code: "precondition_failed" });
  put(control, { id: "caller01:other" });
  expect(put(control, { ifVersion: 3 })).toMatchObject({ code: "precondition_failed" });
  expect(setting(control)).toMatchObject({ version: 1 });
});

test("idempotency: another request under the same key is refused", () => {
  const control = new ReplicatedControl();
  put(control);
  const other = put(control, { fingerprint: prints.two, value: 6 });
  expect(other).toMatchObject({ ok: false, code: "unprocessable" });
  expect(setting(control)).toMatchObject({ value: 5, version: 1 });
});

test("idempotency: answers older than a day by the log's time are dropped", () => {
  const control = new ReplicatedControl();
  put(control);
  expect(put(control, { atMs: DAY_MS })).toEqual({ ok: true, version: 1 });
  expect(put(control, { atMs: DAY_MS + 1 })).toEqual({ ok: true, version: 2 });
});

test("idempotency: a malformed or oversized request is refused and not applied", () => {
  const control = new ReplicatedControl();
  for (const bad of [{ id: "a b" }, { fingerprint: "x" }, { answer: "a".repeat(16_385) }]) {
    expect(put(control, bad)).toMatchObject({ ok: false, code: "invalid_value" });
  }
  expect(setting(control)).toBeUndefined();
});

test("idempotency: the 50,001st drops the oldest, also after a snapshot", async () => {
  const control = new ReplicatedControl();
  for (let at = 0; at < 50_000; at++) put(control, { id: `caller01:${at}` });
  const copy = new ReplicatedControl();
  await copy.restore(control.snapshot());
  for (const each of [control, copy]) {
    put(each, { id: "caller01:last" });
    expect(each.keptAnswer("caller01:0")).toBeUndefined();
    expect(each.keptAnswer("caller01:1")).toBeDefined();
  }
  expect(copy.hash).toBe(control.hash);
});

test("restore: reads a snapshot from before answers and settings existed", async () => {
  const lines = [
    '{"version":1,"commands":1,"logTimeMs":7,"hash":"HASH"}',
    '["#secrets","pepper","abc"]',
  ];
  // The hash that version 0.1.0 gave for these lines.
  const hash = "21c13934fade2975";
  const control = new ReplicatedControl();
  await control.restore(lines.map((line) => line.replace("HASH", hash)));
  expect(control.secret("pepper")).toBe("abc");
});

test("setting: changes only where it has the expected version", () => {
  const control = new ReplicatedControl();
  const change = (value: number, ifVersion?: number, name = "job_timeout") =>
    control.apply(
      {
        type: "control",
        command: { type: "setting.put", atMs: 9, name, value, ifVersion },
      },
      1,
    );
  expect(change(10, 0)).toEqual({ ok: true, version: 1 });
  expect(change(11, 0)).toMatchObject({ code: "precondition_failed" });
  expect(change(12, 1)).toEqual({ ok: true, version: 2 });
  expect(change(13)).toEqual({ ok: true, version: 3 });
  expect(change(0)).toMatchObject({ code: "invalid_value" });
  expect(change(1.5)).toMatchObject({ code: "invalid_value" });
  expect(change(1, undefined, "colour")).toMatchObject({ code: "not_found" });
  expect(change(1.5, undefined, "overcommit_ratio")).toEqual({ ok: true, version: 1 });
  expect(control.state.settings.get("job_timeout")).toEqual({
    value: 13,
    version: 3,
    updatedAtMs: 9,
  });
});
