// holds: ps-update-alone

import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { UpdateGate } from "./update-gate.ts";

const never = new AbortController().signal;
const always = () => true;

test("update gate: an update waits for every reader, whose second release does nothing", async () => {
  const gate = new UpdateGate();
  const first = await gate.read(always, never);
  const second = await gate.read(always, never);
  let isUpdated = false;
  const update = gate.update(() => {
    isUpdated = true;
  }, never);
  first();
  first();
  await turn();
  expect(isUpdated).toBe(false);
  second();
  await update;
  expect(isUpdated).toBe(true);
});

test("update gate: from its decision to its end an update keeps new readers out", async () => {
  const gate = new UpdateGate();
  const before = await gate.read(always, never);
  const order: string[] = [];
  gate.begin();
  const late = gate.read(always, never).then((release) => {
    order.push("read");
    release();
  });
  await turn();
  expect(order).toEqual([]);
  const update = gate.update(() => order.push("update"), never);
  before();
  await Promise.all([late, update]);
  expect(order).toEqual(["update", "read"]);
});

test("update gate: a reader waits for its condition, and leaves when it is cancelled", async () => {
  const gate = new UpdateGate();
  let may = false;
  const waiting = gate.read(() => may, never);
  const cancelled = new AbortController();
  const gone = gate.read(() => may, cancelled.signal);
  cancelled.abort(new Error("cancelled"));
  await expect(gone).rejects.toThrow("cancelled");
  may = true;
  gate.changed();
  (await waiting)();
  // Neither of the two holds up an update.
  await gate.update(() => undefined, never);
});
