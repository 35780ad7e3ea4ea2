// holds: sched-backfill

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { entryKey, jobEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { advance, nextChangeMs } from "../testing/advance.ts";
import { nodes, queues, strategies } from "../testing/arbitraries.ts";
import { HOUR_MS, input, node, queued, request, running } from "../testing/scenarios.ts";

const gang = (gpus: number, hours: number) => ({
  request: request({ gpus }),
  maxRuntimeMs: hours * HOUR_MS,
});

describe("a reserved start", () => {
  it("never moves later while the job stays at the head, whatever is backfilled", () => {
    const sameLevel = queues.map((jobs) =>
      jobs.map((job) => ({
        ...job,
        kind: "training" as const,
        qosLevel: "standard" as const,
        priority: 0,
      })),
    );
    fc.assert(
      fc.property(nodes, sameLevel, sameLevel, strategies, (cluster, queue, late, strategy) => {
        const settings = { defaultStrategy: strategy };
        let at = input({ nodes: cluster }, queue, { settings });
        const promises = new Map<string, number>();
        for (let step = 0; step < 12; step++) {
          const plan = schedule(at);
          for (const { entry } of plan.starts) {
            const promised = promises.get(entryKey(entry));
            if (promised !== undefined) expect(at.nowMs).toBeLessThanOrEqual(promised);
          }
          if (plan.reservations[0]) {
            const { entry, startAtMs } = plan.reservations[0];
            expect(startAtMs).toBeLessThanOrEqual(
              promises.get(entryKey(entry)) ?? Number.POSITIVE_INFINITY,
            );
            promises.set(entryKey(entry), startAtMs);
          }
          const next = advance(at, plan, nextChangeMs(at, plan));
          const arrivals =
            step === 0
              ? late.map((job) => ({ ...job, entry: jobEntry(`late-${entryKey(job.entry)}`) }))
              : [];
          at = { ...next, queue: [...next.queue, ...arrivals] };
        }
      }),
      { numRuns: 300 },
    );
  });

  it("lets a short job run before the head's start and delays a long one", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0, 1, 2, 3, 4, 5] }], {
      maxRuntimeMs: 2 * HOUR_MS,
    });
    const at = input({ nodes: [node("n")], running: [busy] }, [
      queued("head", gang(8, 1)),
      queued("long", { ...gang(1, 3), submittedAtMs: 1 }),
      queued("short", { ...gang(1, 2), submittedAtMs: 2 }),
    ]);
    const plan = schedule(at);
    expect(plan.reservations[0]).toMatchObject({ entry: jobEntry("head"), startAtMs: 2 * HOUR_MS });
    expect(plan.starts.map(({ entry, backfilled }) => [entryKey(entry), backfilled])).toEqual([
      ["short", true],
    ]);
    const long = plan.pending.find(({ entry }) => entryKey(entry) === "long")!;
    expect(long.blockers.map(({ reason }) => reason)).toEqual(["PriorityBehind"]);
  });

  it("lets a long job run on devices that the head does not need", () => {
    const busy = running("busy", [{ nodeId: "a", devices: [0, 1, 2, 3] }]);
    const cluster = [node("a", { gpus: 4 }), node("b", { gpus: 2 })];
    const at = input({ nodes: cluster, running: [busy] }, [
      queued("head", gang(4, 1)),
      queued("long", { ...gang(1, 9), submittedAtMs: 1 }),
    ]);
    const plan = schedule(at);
    expect(plan.starts.map(({ entry }) => entryKey(entry))).toEqual(["long"]);
    expect(plan.starts[0]!.placements[0]!.nodeId).toBe("b");
  });

  it("does not give a long job the device that a short one just got", () => {
    const busy = running("busy", [{ nodeId: "a", devices: [0, 1, 2, 3] }]);
    const cluster = [node("a", { gpus: 4 }), node("b", { gpus: 1 })];
    const at = input({ nodes: cluster, running: [busy] }, [
      queued("head", gang(4, 1)),
      queued("short", { ...gang(1, 1), submittedAtMs: 1 }),
      queued("long", { ...gang(1, 9), submittedAtMs: 2 }),
    ]);
    expect(schedule(at).starts.map(({ entry }) => entryKey(entry))).toEqual(["short"]);
  });

  it("does not give another job the devices of a long one, after a short one besides", () => {
    const cores = (count: number, hours: number, submittedAtMs: number) => ({
      request: request({ gpus: 0, cpuMilli: count * 1_000 }),
      maxRuntimeMs: hours * HOUR_MS,
      submittedAtMs,
    });
    const busy = running("busy", [{ nodeId: "n", devices: [] }], cores(32, 2, 0));
    const at = input({ nodes: [node("n")], running: [busy] }, [
      queued("head", cores(80, 1, 0)),
      queued("long1", cores(16, 9, 1)),
      queued("short", cores(16, 1, 2)),
      queued("long2", cores(16, 9, 3)),
    ]);
    expect(schedule(at).starts.map(({ entry }) => entryKey(entry))).toEqual(["long1", "short"]);
  });

  it.each([
    [0, ["behind"]],
    [1, []],
  ])("backfill: a job may end at the promised start, and %i ms later may not", (over, starts) => {
    const startMs = 90 * 60_000 + 1;
    const ends = (maxRuntimeMs: number, change: object) => ({
      request: request({ gpus: 1 }),
      ...change,
      maxRuntimeMs,
    });
    const busy = running("busy", [{ nodeId: "n", devices: [0] }], { maxRuntimeMs: startMs });
    const cluster = { nodes: [node("n", { gpus: 2 })], running: [busy] };
    const behind = queued("behind", ends(startMs + over, { submittedAtMs: 1 }));
    const plan = schedule(input(cluster, [queued("head", gang(2, 1)), behind]));
    expect(plan.reservations).toMatchObject([{ entry: jobEntry("head"), startAtMs: startMs }]);
    expect(plan.starts.map(({ entry }) => entryKey(entry))).toEqual(starts);
    // The same if only shared storage is wanted, and if another place must be found.
    const limit = { storageMb: 10, places: new Map() };
    const free = { storageMb: 4, places: new Map() };
    const shared = (storageMb: number) => ({ storageMb, shards: 0, placesPerShard: 1 });
    const holds = { ...busy, shared: { storageMb: 6, places: new Map() } };
    const stored = schedule(
      input({ nodes: [node("n"), node("o")], running: [holds], shared: { limit, free } }, [
        queued("head", { ...gang(2, 1), shared: shared(8) }),
        { ...behind, shared: shared(3) },
      ]),
    );
    expect(stored.reservations).toMatchObject([{ entry: jobEntry("head"), startAtMs: startMs }]);
    expect(stored.starts.map(({ entry }) => entryKey(entry))).toEqual(starts);
  });

  it("backfill: a reservation binds all later placements, whatever was tried before", () => {
    const on = (name: string, gpus: number, hours: number, submittedAtMs: number) => ({
      request: request({ gpus, nodeAffinity: [{ key: "n", operator: "in", values: [name] }] }),
      maxRuntimeMs: hours * HOUR_MS,
      submittedAtMs,
    });
    const cluster = ["a", "b"].map((name) => node(name, { gpus: 2, labels: { n: name } }));
    const busy = [["a", 10] as const, ["b", 5] as const].map(([nodeId, hours]) =>
      running(nodeId, [{ nodeId, devices: [0] }], { maxRuntimeMs: hours * HOUR_MS }),
    );
    const plan = schedule(
      input({ nodes: cluster, running: busy }, [
        queued("head a", on("a", 2, 1, 0)),
        queued("long a", on("a", 1, 12, 1)),
        queued("head b", on("b", 2, 1, 2)),
        queued("long b", on("b", 1, 7, 3)),
        queued("short b", on("b", 1, 5, 4)),
        queued("a millisecond long a", on("a", 1, 10 + 1 / HOUR_MS, 5)),
      ]),
    );
    expect(
      plan.reservations.map(({ entry, startAtMs }) => [entryKey(entry), startAtMs / HOUR_MS]),
    ).toEqual([
      ["head a", 10],
      ["head b", 5],
    ]);
    expect(plan.starts.map(({ entry }) => entryKey(entry))).toEqual(["short b"]);
  });

  it("moves to the next job if the first can never start", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0] }]);
    const at = input({ nodes: [node("n", { gpus: 1 })], running: [busy] }, [
      queued("never", gang(8, 1)),
      queued("next", { ...gang(1, 1), submittedAtMs: 1 }),
    ]);
    expect(schedule(at).reservations[0]?.entry).toEqual(jobEntry("next"));
  });
});
