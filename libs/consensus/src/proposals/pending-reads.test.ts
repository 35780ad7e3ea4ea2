import { expect, test } from "vitest";
import { PendingReads } from "./pending-reads.ts";

/** Reads whose ends are noted by a name. */
function noted(incarnation = 3) {
  const reads = new PendingReads(incarnation);
  const ends: string[] = [];
  const asked: Uint8Array[] = [];
  const add = (name: string, deadlineTick = 100) =>
    void reads.add(deadlineTick).then(
      () => ends.push(`${name} done`),
      ({ code, message, retryAfterMs: ms }) =>
        ends.push(`${name} ${code} ${/catch up/.test(message) ? `late, again in ${ms}` : ""}`),
    );
  const ask = (tick = 0) =>
    reads.ask(tick, (context) => {
      asked.push(context);
      return true;
    });
  const settled = () => new Promise<void>((resolve) => setImmediate(resolve));
  const answer = (round: number, index: number) =>
    reads.answered({ index, context: asked[round] as Uint8Array });
  return { reads, ends, asked, add, ask, answer, settled };
}

test("reads: those that wait share a question, and go when its index is applied", async () => {
  const { reads, ends, asked, add, ask, answer, settled } = noted();
  add("a");
  add("b");
  expect(reads.hasWaiting).toBe(true);
  ask();
  expect(reads.hasWaiting).toBe(false);
  expect(asked).toHaveLength(1);
  answer(0, 7);
  reads.applied(6);
  await settled();
  expect(ends).toEqual([]);
  reads.applied(7);
  await settled();
  expect(ends).toEqual(["a done", "b done"]);
});

test("reads: one that comes after a question is not served by its answer", async () => {
  const { reads, ends, add, ask, answer, settled } = noted();
  add("a");
  ask();
  add("b");
  answer(0, 1);
  reads.applied(9);
  await settled();
  expect(ends).toEqual(["a done"]);
  ask();
  answer(1, 9);
  reads.applied(9);
  await settled();
  expect(ends).toEqual(["a done", "b done"]);
});

test("reads: a question that was not taken leaves them waiting", () => {
  const { reads, add, ask, asked } = noted();
  add("a");
  reads.ask(0, () => false);
  expect(reads.hasWaiting).toBe(true);
  ask();
  expect(asked).toHaveLength(1);
});

test("reads: an answer of another start, form or a second time is ignored", async () => {
  const { reads, ends, asked, add, ask, answer, settled } = noted(3);
  const other = noted(4);
  add("a");
  ask();
  other.add("x");
  other.ask();
  reads.answered({ index: 1, context: other.asked[0] as Uint8Array });
  reads.answered({ index: 1, context: (asked[0] as Uint8Array).subarray(0, 8) });
  reads.applied(9);
  await settled();
  expect(ends).toEqual([]);
  answer(0, 5);
  answer(0, 1);
  reads.applied(4);
  await settled();
  expect(ends).toEqual([]);
});

test("reads: an unanswered request is sent again, and an old answer is ignored", async () => {
  const { reads, ends, asked, add, ask, answer, settled } = noted();
  add("a");
  ask(10);
  reads.tick(19, 10);
  expect(reads.hasWaiting).toBe(false);
  reads.tick(20, 10);
  expect(reads.hasWaiting).toBe(true);
  answer(0, 1);
  reads.applied(9);
  await settled();
  expect(ends).toEqual([]);
  ask(20);
  expect(asked[1]).not.toEqual(asked[0]);
  answer(1, 1);
  reads.applied(9);
  await settled();
  expect(ends).toEqual(["a done"]);
});

test("reads: at their deadline they are refused, in whatever stage", async () => {
  const { reads, ends, add, ask, answer, settled } = noted();
  add("confirmed", 10);
  ask(9);
  answer(0, 50);
  add("waiting", 10);
  add("patient", 11);
  reads.tick(9, 100);
  await settled();
  expect(ends).toEqual([]);
  reads.tick(10, 100);
  await settled();
  expect(ends).toEqual(["waiting unavailable ", "confirmed unavailable late, again in 1000"]);
  reads.tick(11, 100);
  expect(reads.hasWaiting).toBe(false);
  reads.applied(50);
  reads.rejectAll("over");
  await settled();
  expect(ends.slice(2)).toEqual(["patient unavailable "]);
});

test("reads: 65,536 may wait, in whatever stage, and further ones after their end", async () => {
  const { reads, ends, add, ask, settled } = noted();
  for (let n = 0; n < 65_536; n++) reads.add(100).catch(() => undefined);
  ask();
  add("over");
  await settled();
  expect(ends).toEqual(["over overloaded "]);
  await expect(reads.add(100)).rejects.toMatchObject({ retryAfterMs: 1_000 });
  reads.rejectAll("over");
  await settled();
  add("next");
  await settled();
  expect(ends).toHaveLength(1);
  expect(reads.hasWaiting).toBe(true);
});

test("reads: at the end all are refused, in whatever stage they are", async () => {
  const { reads, ends, add, ask, answer, settled } = noted();
  add("confirmed");
  ask();
  answer(0, 5);
  add("asked");
  ask();
  add("waiting");
  reads.rejectAll("over");
  await settled();
  expect(ends.sort()).toEqual([
    "asked unavailable ",
    "confirmed unavailable ",
    "waiting unavailable ",
  ]);
  expect(reads.hasWaiting).toBe(false);
});
