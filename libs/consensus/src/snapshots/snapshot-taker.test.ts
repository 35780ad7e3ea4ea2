import { expect, test } from "vitest";
import type { Applier } from "../replica/applier.ts";
import type { DurableLog } from "../replica/durable-log.ts";
import { SnapshotTaker } from "./snapshot-taker.ts";

/** A taker at 100 entries or 1,000 bytes over a log whose snapshot is of entry 50. */
function taker() {
  const begun: PromiseWithResolvers<void>[] = [];
  const faults: unknown[] = [];
  const log = { snapshotIndex: 50 };
  const applier = {
    applied: { index: 50, term: 1 },
    bytesSinceSnapshot: 0,
    wantsSnapshot: false,
    renewsSnapshot: false,
    beginSnapshot(): Promise<void> | undefined {
      this.wantsSnapshot = false;
      this.renewsSnapshot = false;
      this.bytesSinceSnapshot = 0;
      begun.push(Promise.withResolvers<void>());
      return begun.at(-1)?.promise;
    },
  };
  const state = { isStopped: false };
  const one = new SnapshotTaker({
    log: log as DurableLog,
    applier: applier as unknown as Applier<unknown>,
    snapshotEntries: 100,
    snapshotBytes: 1_000,
    betweenBatches: async (run) => run(),
    isStopped: () => state.isStopped,
    fail: (error) => faults.push(error),
  });
  const settled = () => new Promise<void>((resolve) => setImmediate(resolve));
  const end = async (at: number, index: number) => {
    log.snapshotIndex = index;
    begun[at]?.resolve();
    await settled();
  };
  return { one, log, applier, begun, faults, state, end, settled };
}

test("snapshot: one is due after that many entries or bytes, and not before", () => {
  for (const [index, bytes, count] of [
    [149, 999, 0] as const,
    [150, 0, 1] as const,
    [51, 1_000, 1] as const,
  ]) {
    const { one, applier, begun } = taker();
    applier.applied = { index, term: 1 };
    applier.bytesSinceSnapshot = bytes;
    one.maybeTake();
    expect(begun).toHaveLength(count);
  }
});

test("snapshot: one at a time; what is due meanwhile is begun with the next batch", async () => {
  const { one, applier, begun, end } = taker();
  applier.applied = { index: 150, term: 1 };
  one.maybeTake();
  applier.bytesSinceSnapshot = 5_000;
  one.maybeTake();
  expect(begun).toHaveLength(1);
  await end(0, 150);
  expect(begun).toHaveLength(1);
  one.maybeTake();
  expect(begun).toHaveLength(2);
});

test("snapshot: one that is wanted while another is under way follows by itself", async () => {
  const { one, applier, begun, end } = taker();
  void one.take();
  applier.wantsSnapshot = true;
  await end(0, 60);
  expect(begun).toHaveLength(2);
});

test("snapshot: asked for, it resolves when it is in use", async () => {
  const { one, begun, end, settled } = taker();
  const done: string[] = [];
  const taken = one.take().then(() => done.push("taken"));
  const idle = one.settle().then(() => done.push("idle"));
  await settled();
  expect([begun.length, done]).toEqual([1, []]);
  await end(0, 60);
  await Promise.all([taken, idle]);
});

test("snapshot: asked for while one is under way, it resolves with the next", async () => {
  const { one, applier, begun, end, settled } = taker();
  applier.wantsSnapshot = true;
  one.maybeTake();
  let isDone = false;
  const taken = one.take().then(() => {
    isDone = true;
  });
  await end(0, 60);
  await settled();
  expect([begun.length, isDone]).toEqual([2, false]);
  await end(1, 70);
  await taken;
});

test("snapshot: a damaged one is replaced, unless a newer has replaced it", async () => {
  const { one, begun, end, settled } = taker();
  const renewed = one.renew();
  await settled();
  await end(0, 50);
  await renewed;
  expect(begun).toHaveLength(1);
  void one.take();
  const late = one.renew();
  await end(1, 70);
  await late;
  expect(begun).toHaveLength(2);
});

test("snapshot: none is begun after the stop; a failed write is reported once", async () => {
  const { one, applier, begun, faults, state, settled } = taker();
  void one.take();
  const error = new Error("the disk is full");
  begun[0]?.reject(error);
  await settled();
  expect(faults).toEqual([error]);
  state.isStopped = true;
  applier.wantsSnapshot = true;
  one.maybeTake();
  expect(begun).toHaveLength(1);
});
