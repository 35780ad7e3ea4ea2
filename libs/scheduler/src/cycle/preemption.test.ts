// holds: sched-preemption

import { runToEnd } from "@heddle/base/async/steps";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Ledger } from "../cluster/ledger.ts";
import { Roster } from "../cluster/roster.ts";
import { ShapeTable } from "../cluster/shape.ts";
import { type GangRequest, gangFits } from "../placement/gang.ts";
import { entryKey, jobEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { advance } from "../testing/advance.ts";
import { nodes, queues } from "../testing/arbitraries.ts";
import { HOUR_MS, input, node, queued, request, running } from "../testing/scenarios.ts";
import { chooseVictims, lostGpuSeconds, mayPreempt, type Victim } from "./preemption.ts";

const high = { priority: 10 };

describe("preemption", () => {
  it("evicts preemptible jobs of a lower level that are not leaving yet", () => {
    const place = [{ nodeId: "n", devices: [0] }];
    const preemptor = queued("q", high);
    const may = (change: object) => mayPreempt(preemptor, running("r", place, change));
    expect([may({}), may({ priority: 9 }), may({ priority: 10 })]).toEqual([true, true, false]);
    expect(may({ preemptible: false })).toBe(false);
    expect(may({ evicting: { forEntry: jobEntry("other"), byMs: 1 } })).toBe(false);
    expect(may({ kind: "serving" })).toBe(false);
    expect(mayPreempt({ ...preemptor, kind: "serving" }, running("r", place, high))).toBe(true);
  });

  it("takes the job whose checkpoint is youngest", () => {
    const old = running("old", [{ nodeId: "n", devices: [0] }], { checkpointedAtMs: 10_000 });
    const young = running("young", [{ nodeId: "n", devices: [1] }], { checkpointedAtMs: 50_000 });
    const at = input(
      { nodes: [node("n", { gpus: 2 })], running: [old, young] },
      [queued("q", high)],
      {
        nowMs: 60_000,
      },
    );
    expect(schedule(at).preemptions).toEqual([
      { victimId: "young", forEntry: jobEntry("q"), lostGpuSeconds: 10 },
    ]);
  });

  it("minimizes GPUs times seconds: one young wide job may cost more than two old ones", () => {
    const wide = running("wide", [{ nodeId: "a", devices: [0, 1, 2, 3] }], {
      checkpointedAtMs: 40_000,
    });
    const narrow = ["x", "y"].map((id, i) =>
      running(id, [{ nodeId: "b", devices: [i] }], { checkpointedAtMs: 25_000 }),
    );
    const cluster = [node("a", { gpus: 4 }), node("b", { gpus: 2 })];
    const job = queued("q", { ...high, request: request({ gpus: 2 }) });
    const at = input({ nodes: cluster, running: [wide, ...narrow] }, [job], { nowMs: 60_000 });
    const victims = schedule(at).preemptions.map(({ victimId }) => victimId);
    expect(victims.sort()).toEqual(["x", "y"]);
  });

  it("does not evict if waiting is as short", () => {
    const ends = running("ends", [{ nodeId: "n", devices: [0] }], { maxRuntimeMs: 60_000 });
    const at = input({ nodes: [node("n", { gpus: 1 })], running: [ends] }, [queued("q", high)]);
    const plan = schedule(at);
    expect(plan.preemptions).toEqual([]);
    expect(plan.reservations[0]?.startAtMs).toBe(60_000);
  });

  it("evicts no further job while enough are leaving, and reports that", () => {
    const jobs = ["x", "y"].map((id, i) => running(id, [{ nodeId: "n", devices: [i] }]));
    const at = input({ nodes: [node("n", { gpus: 2 })], running: jobs }, [queued("q", high)], {
      nowMs: 1_000,
    });
    const next = advance(at, schedule(at), 2_000);
    const plan = schedule(next);
    expect(plan.preemptions).toEqual([]);
    expect(plan.pending[0]!.blockers.map(({ reason }) => reason)).toEqual([
      "InsufficientGpu",
      "PreemptionInProgress",
    ]);
  });

  it.each([
    ["a job that is not preemptible", { preemptible: false }],
    ["a job of the same level", { priority: 10 }],
    ["a job of a higher qos", { qosLevel: "guaranteed" as const }],
    ["serving", { kind: "serving" as const }],
  ])("spares %s", (_, change) => {
    const job = running("r", [{ nodeId: "n", devices: [0] }], change);
    const at = input({ nodes: [node("n", { gpus: 1 })], running: [job] }, [queued("q", high)]);
    expect(schedule(at).preemptions).toEqual([]);
  });

  it("finds the cheapest set for a single task, equal to brute force", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(fc.integer({ min: 0, max: 2 }), fc.integer({ min: 1, max: 3 }), fc.nat(90)),
          {
            maxLength: 6,
          },
        ),
        fc.integer({ min: 1, max: 4 }),
        (jobs, gpus) => {
          const { ledger, gang, victims } = crowded(jobs, { gpus, tasks: 1 });
          const chosen = runToEnd(chooseVictims(ledger, gang, victims));
          const best = leastLoss(ledger, gang, victims);
          expect(chosen === undefined ? undefined : total(chosen)).toBe(best);
        },
      ),
      { numRuns: 200 },
    );
  });

  it("never evicts a job that a gang does not need", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(fc.integer({ min: 0, max: 2 }), fc.integer({ min: 1, max: 3 }), fc.nat(90)),
          {
            maxLength: 7,
          },
        ),
        fc.integer({ min: 2, max: 4 }),
        (jobs, tasks) => {
          const { ledger, gang, victims } = crowded(jobs, { gpus: 2, tasks });
          const chosen = runToEnd(chooseVictims(ledger, gang, victims));
          if (!chosen) return expect(leastLoss(ledger, gang, victims)).toBeUndefined();
          expect(fitsWithout(ledger, gang, chosen)).toBe(true);
          for (const spared of chosen) {
            const fewer = chosen.filter((victim) => victim !== spared);
            expect(fitsWithout(ledger, gang, fewer)).toBe(false);
          }
        },
      ),
      { numRuns: 200 },
    );
  });

  it("reaches a fixed point: without arrivals and ends the evictions stop", () => {
    const endless = queues.map((jobs) =>
      jobs.map((job) => ({ ...job, preemptible: true, maxRuntimeMs: 90 * HOUR_MS })),
    );
    fc.assert(
      fc.property(nodes, endless, endless, (cluster, first, second) => {
        let at = input({ nodes: cluster }, first);
        at = advance(at, schedule(at), 1_000);
        const arrivals = second.map((job) => ({
          ...job,
          entry: jobEntry(`late-${entryKey(job.entry)}`),
          priority: 5,
        }));
        at = { ...at, queue: [...at.queue, ...arrivals] };
        const jobs = at.queue.length + at.snapshot.running.length;
        let evicting = 0;
        for (let cycle = 0; cycle < 4 * jobs + 4; cycle++) {
          const plan = schedule(at);
          evicting = plan.preemptions.length;
          at = advance(at, plan, at.nowMs + at.settings.preemptionGraceMs);
        }
        expect(evicting).toBe(0);
      }),
      { numRuns: 60 },
    );
  });
});

/** A ledger with these (node, GPUs, seconds since checkpoint) jobs on it, where they fit. */
function crowded(
  jobs: readonly (readonly [number, number, number])[],
  asked: { gpus: number; tasks: number },
): { ledger: Ledger; gang: GangRequest; victims: Victim[] } {
  const cluster = [node("0", { gpus: 4 }), node("1", { gpus: 4 }), node("2", { gpus: 4 })];
  const ledger = Ledger.ofCapacity(new Roster(cluster), 1);
  const shapes = new ShapeTable(new Roster(cluster));
  const victims: Victim[] = [];
  const used = [0, 0, 0];
  jobs.forEach(([at, gpus, seconds], i) => {
    if (used[at]! + gpus > 4) return;
    const devices = Array.from({ length: gpus }, (_, d) => used[at]! + d);
    used[at]! += gpus;
    const job = running(`r${i}`, [{ nodeId: String(at), devices }], {
      checkpointedAtMs: 100_000 - seconds * 1000,
    });
    const shape = shapes.of(job.request);
    ledger.take(at, shape, devices);
    const release = { atMs: 0, shape, tasks: [{ node: at, devices }] };
    victims.push({ job, release, lostGpuSeconds: lostGpuSeconds(job, 100_000) });
  });
  const shape = shapes.of(request({ gpus: asked.gpus }));
  const gang = { shape, tasks: asked.tasks, sameRack: false, strategy: "binpack" } as const;
  return { ledger, gang, victims };
}

function leastLoss(ledger: Ledger, gang: GangRequest, victims: Victim[]): number | undefined {
  let best: number | undefined;
  for (let mask = 0; mask < 1 << victims.length; mask++) {
    const subset = victims.filter((_, bit) => (mask >> bit) & 1);
    if (!fitsWithout(ledger, gang, subset)) continue;
    best = Math.min(best ?? Number.POSITIVE_INFINITY, total(subset));
  }
  return best;
}

function fitsWithout(ledger: Ledger, gang: GangRequest, victims: readonly Victim[]): boolean {
  const then = ledger.clone();
  for (const { release } of victims) {
    for (const { node: at, devices } of release.tasks) then.release(at, release.shape, devices);
  }
  return gangFits(then, gang);
}

function total(victims: readonly Victim[]): number {
  return victims.reduce((sum, { lostGpuSeconds: lost }) => sum + lost, 0);
}
