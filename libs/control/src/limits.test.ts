// holds: key-limits

import { MAX_BUDGET, MAX_PRICE, NANOS, NANOS_PER_MILLION } from "@heddle/contracts/limits";
import { expect, test } from "vitest";
import { LIMITS_SUBJECTS } from "./cluster-version.ts";
import type { ControlCommand } from "./command.ts";
import { limitsFault } from "./limits.ts";
import { newestControl } from "./testing/newest-control.ts";

const KEY = {
  id: "abcd1234",
  name: "k",
  hash: "0".repeat(64),
  scopes: [],
  models: [],
  limits: { concurrency: 3 },
  createdAtMs: 0,
};

/** A control with one key, and what it answers to limits of a project by default. */
function limited() {
  const control = newestControl();
  const apply = (command: ControlCommand) =>
    control.apply({ type: "control", command }, control.index + 1);
  apply({ type: "key.create", atMs: 0, key: KEY } as ControlCommand);
  const set = (change: object) => {
    const command = {
      type: "limits.set",
      atMs: 0,
      kind: "project",
      name: "p",
      record: { limits: {} },
    };
    return apply({ ...command, ...change } as ControlCommand);
  };
  return { state: control.state, set };
}

const refused = { ok: false, code: "invalid_value" };
const budget = (amount: number, period = "day") => ({ budget: { amount, period } });

test("limits: are positive integers, budgets and prices whole amounts up to a bound", () => {
  const { set } = limited();
  const answers = (values: readonly number[], recordOf: (value: number) => object) =>
    values.map((value) => set({ kind: "model", name: "m", record: recordOf(value) }).ok);
  const rate = (name: string) => (value: number) => ({ limits: { [name]: value } });
  for (const name of ["requestsPerMinute", "tokensPerMinute", "concurrency"]) {
    expect(answers([1, 7, 0, -1, 0.5, 2 ** 53], rate(name))).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ]);
  }
  const most = MAX_BUDGET * NANOS;
  const amounts = [0, 1, most, most + 2, -1, 0.5];
  const upToMost = [true, true, true, false, false, false];
  expect(answers(amounts, (amount) => ({ limits: budget(amount) }))).toEqual(upToMost);
  const price = MAX_PRICE * NANOS_PER_MILLION;
  const prices = [0, 1, price, price + 1, -1, 0.5];
  for (const name of ["input", "output"]) {
    const recordOf = (value: number) => ({
      limits: {},
      prices: { input: 0, output: 0, [name]: value },
    });
    expect(answers(prices, recordOf)).toEqual(upToMost);
  }
  for (const period of ["day", "month", "total"]) {
    expect(set({ record: { limits: budget(1, period) } }).ok).toBe(true);
  }
  expect(set({ record: { limits: budget(1, "week") } })).toMatchObject(refused);
});

test("limits: before budgets existed, none is a limit", () => {
  const fault = (version: number) => limitsFault({ budget: { amount: 1, period: "day" } }, version);
  expect(fault(LIMITS_SUBJECTS - 1)).toMatch(/budget must be a positive integer/);
  expect(fault(LIMITS_SUBJECTS)).toBeUndefined();
  expect(limitsFault({ concurrency: undefined }, LIMITS_SUBJECTS)).toBeUndefined();
});

test("limits: those of a key are in its record, and those of a project in its own", () => {
  const { state, set } = limited();
  const record = { limits: { concurrency: 9 } };
  expect(set({ kind: "key", name: KEY.id, record })).toEqual({ ok: true });
  expect(state.keys.get(KEY.id)).toEqual({ ...KEY, limits: record.limits });
  expect(set({ kind: "key", name: "none0000", record })).toMatchObject({ code: "not_found" });
  expect(set({ record })).toEqual({ ok: true });
  expect(set({ kind: "model", name: "m", project: "p", record })).toEqual({ ok: true });
  expect([...state.limits]).toEqual([
    ["project:p", record],
    ["model:p m", record],
  ]);
  // Nothing that is limited: the record goes.
  expect(set({ record: { limits: { concurrency: undefined } } })).toEqual({ ok: true });
  expect([...state.limits.keys()]).toEqual(["model:p m"]);
  const priced = { limits: {}, prices: { input: 1, output: 2 } };
  expect(set({ kind: "model", name: "m", project: "p", record: priced })).toEqual({ ok: true });
  expect([...state.limits]).toEqual([["model:p m", priced]]);
});

test("limits: models alone have prices and projects; names are those of identifiers", () => {
  const { state, set } = limited();
  const prices = { input: 1, output: 2 };
  expect(set({ record: { limits: {}, prices } })).toMatchObject({ ...refused, param: "prices" });
  expect(set({ project: "q" })).toMatchObject({ ...refused, param: "project" });
  const record = { limits: { concurrency: 1 } };
  for (const name of ["", "a b", "-a", "a".repeat(201), "a\n"]) {
    expect(set({ name, record })).toMatchObject({ ...refused, param: "name" });
  }
  expect(state.limits.size).toBe(0);
  for (const name of ["a", "A0._:/-", "a".repeat(200)]) expect(set({ name, record }).ok).toBe(true);
});

test("limits: 20,000 records are kept, which may still change", () => {
  const { state, set } = limited();
  const record = { limits: { concurrency: 1 } };
  for (let n = 0; n < 20_000; n++) state.limits.set(`project:p${n}`, record);
  expect(set({ name: "more", record })).toMatchObject({ code: "conflict" });
  expect(set({ name: "p7", record: { limits: { concurrency: 2 } } })).toEqual({ ok: true });
  expect(set({ name: "p8" })).toEqual({ ok: true });
  expect(set({ name: "more", record })).toEqual({ ok: true });
});
