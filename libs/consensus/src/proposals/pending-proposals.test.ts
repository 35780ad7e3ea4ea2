import { AppError } from "@heddle/base/errors";
import { expect, test } from "vitest";
import { noLeader, PendingProposals } from "./pending-proposals.ts";

const MIB = 2 ** 20;

/** Proposals whose ends are noted, each by its sequence number. */
function noted() {
  const pending = new PendingProposals<string>();
  const ends: string[] = [];
  const waiter = {
    resolve: (reply: string, sequence: number) => ends.push(`${sequence} ${reply}`),
    reject: ({ code }: AppError, sequence: number) => ends.push(`${sequence} ${code}`),
  };
  const add = (sequence: number, bytes = 1, deadlineTick = 10) => {
    const data = new Uint8Array(bytes).fill(sequence % 256);
    pending.add(sequence, { type: "EntryNormal", data }, deadlineTick, waiter);
  };
  /** The first bytes of the batch that is handed over under that number. */
  const handOver = (number: number | undefined, term = 1): number[] => {
    let batch: number[] = [];
    const isTaken = pending.handOver(term, (entries) => {
      batch = entries.map(({ data }) => data[0] ?? -1);
      return number;
    });
    expect(isTaken).toBe(number !== undefined && batch.length > 0);
    return batch;
  };
  return { pending, ends, add, handOver };
}

test("proposals: a batch has 512 of them at most, in their order; the rest waits", () => {
  const { pending, add, handOver } = noted();
  for (let sequence = 0; sequence < 513; sequence++) add(sequence);
  expect(handOver(1)).toHaveLength(512);
  expect(pending.hasWaiting).toBe(true);
  expect(handOver(2)).toEqual([0]);
  expect(pending.hasWaiting).toBe(false);
  expect(handOver(3)).toEqual([]);
});

test("proposals: a batch has 1 MiB at most, but for one that is larger by itself", () => {
  const { add, handOver } = noted();
  for (const [sequence, bytes] of [2 * MIB, MIB / 2, MIB / 2, 1].entries()) add(sequence, bytes);
  expect([handOver(1), handOver(2), handOver(3)]).toEqual([[0], [1, 2], [3]]);
});

test("proposals: a batch that Raft does not take waits on, whole and in its order", () => {
  const { ends, add, handOver } = noted();
  add(1);
  add(2);
  expect(handOver(undefined)).toEqual([1, 2]);
  expect(handOver(1)).toEqual([1, 2]);
  expect(ends).toEqual([]);
});

test("proposals: the 10,001st that is open is refused, and one more fits after an end", () => {
  const { pending, ends, add, handOver } = noted();
  for (let sequence = 0; sequence < 10_000; sequence++) add(sequence);
  // Those that are handed over are still open.
  handOver(1);
  expect(ends).toEqual([]);
  add(10_000);
  expect(ends.splice(0)).toEqual(["10000 overloaded"]);
  pending.resolve(0, "done");
  add(10_001);
  expect(ends).toEqual(["0 done"]);
});

test("proposals: 64 MiB may wait; what is handed over, sent back or late counts once", () => {
  const { pending, ends, add, handOver } = noted();
  add(1, 32 * MIB, 5);
  add(2, 31 * MIB);
  add(3, MIB + 1);
  expect(ends.splice(0)).toEqual(["3 overloaded"]);
  handOver(1);
  add(4, 32 * MIB);
  add(5, MIB);
  pending.takeBack(1);
  add(6);
  expect(ends.splice(0)).toEqual(["6 overloaded"]);
  pending.rejectExpired(5);
  expect(ends.splice(0)).toEqual(["1 unavailable"]);
  add(7, 0);
  add(8);
  expect(ends.splice(0)).toEqual(["8 overloaded"]);
  pending.rejectAll("over");
  ends.length = 0;
  add(9, 32 * MIB);
  add(10, 32 * MIB);
  expect(ends).toEqual([]);
});

test("proposals: a batch that comes back goes first, and a late refusal does nothing", () => {
  const { pending, add, handOver } = noted();
  add(1);
  handOver(1);
  add(2);
  handOver(2);
  add(3);
  pending.takeBack(1);
  pending.takeBack(1);
  expect(handOver(3)).toEqual([1, 3]);
  pending.takeBack(1);
  expect(pending.hasWaiting).toBe(false);
  pending.takeBack(2);
  expect(handOver(4)).toEqual([2]);
});

test("proposals: a waiter is settled once", () => {
  const { pending, ends, add } = noted();
  add(1);
  add(2);
  pending.resolve(1, "done");
  pending.resolve(1, "again");
  pending.reject(1, new AppError("conflict", "again"));
  pending.reject(2, new AppError("conflict", "no"));
  pending.resolve(2, "again");
  expect(ends).toEqual(["1 done", "2 conflict"]);
});

test("proposals: a later term makes what was handed over before it unknown", () => {
  const { pending, ends, add, handOver } = noted();
  add(1);
  handOver(1, 1);
  add(2);
  handOver(2, 2);
  add(3);
  pending.rejectBefore(1);
  expect(ends).toEqual([]);
  pending.rejectBefore(2);
  expect(ends.splice(0)).toEqual(["1 outcome_unknown"]);
  pending.rejectBefore(3);
  expect(ends).toEqual(["2 outcome_unknown"]);
  expect(handOver(3, 3)).toEqual([3]);
});

test("proposals: at its deadline one is refused, or unknown where it was handed over", () => {
  const { pending, ends, add, handOver } = noted();
  add(1, 1, 5);
  handOver(1);
  add(2, 1, 5);
  add(3, 1, 6);
  pending.rejectExpired(4);
  expect(ends).toEqual([]);
  pending.rejectExpired(5);
  expect(ends).toEqual(["1 outcome_unknown", "2 unavailable"]);
  expect(handOver(2)).toEqual([3]);
});

test("proposals: at the end all waiters are rejected, and none is left", () => {
  const { pending, ends, add, handOver } = noted();
  add(1);
  handOver(1);
  add(2);
  pending.rejectAll("over");
  expect(ends).toEqual(["1 outcome_unknown", "2 unavailable"]);
  expect(pending.hasWaiting).toBe(false);
  expect(handOver(2)).toEqual([]);
});

test("proposals: a refusal says when to try again, an unknown outcome does not", () => {
  const pending = new PendingProposals<string>();
  const errors: AppError[] = [];
  const waiter = { resolve: () => undefined, reject: (error: AppError) => errors.push(error) };
  const add = (sequence: number, bytes: number) => {
    const payload = { type: "EntryNormal" as const, data: new Uint8Array(bytes) };
    pending.add(sequence, payload, 5, waiter);
  };
  add(1, 1);
  pending.handOver(1, () => 1);
  add(2, 64 * MIB);
  add(3, 1);
  pending.rejectExpired(5);
  expect(errors.map(({ code, retryAfterMs }) => [code, retryAfterMs])).toEqual([
    ["overloaded", 1_000],
    ["outcome_unknown", undefined],
    ["unavailable", 1_000],
  ]);
  expect(errors[2]?.message).toBe(noLeader().message);
});
