// holds: sched-limits

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { holdings } from "./cluster/fair-share.ts";
import { levelOf, runtimeBoundMs } from "./cluster/precedence.ts";
import type { SchedulingInput } from "./cycle/scheduling-cycle.ts";
import type { NodeSnapshot, Plan, QueuedJob } from "./model.ts";
import { entryKey, isSameEntry, jobEntry } from "./plan-entry.ts";
import { schedule } from "./schedule.ts";
import { advance } from "./testing/advance.ts";
import { nodes, queues, strategies } from "./testing/arbitraries.ts";
import { refusals } from "./testing/refusals.ts";
import { HOUR_MS, input, node, project, queued, request, running } from "./testing/scenarios.ts";

/** A cluster in use: a few scheduling cycles over the first part of the queue. */
const inputs: fc.Arbitrary<SchedulingInput> = fc
  .record({ cluster: nodes, first: queues, second: queues, defaultStrategy: strategies })
  .map(({ cluster, first, second, defaultStrategy }) => {
    const projects = ["p1", "p2"].map((name) =>
      project(name, { quota: { gpuMilli: 9_000, gpuHours: 60, queueLength: 12 } }),
    );
    const settings = { defaultStrategy, maxConcurrentJobs: 20 };
    const start = input({ nodes: cluster, projects }, first, { settings });
    const later = advance(start, schedule(start), HOUR_MS);
    const renamed = second.map((job) => ({
      ...job,
      entry: jobEntry(`k${entryKey(job.entry)}`),
      submittedAtMs: HOUR_MS,
    }));
    return { ...later, queue: [...later.queue, ...renamed] };
  });

describe("schedule", () => {
  // holds: sched-gang
  it("starts only whole gangs on free capacity", () => {
    fc.assert(
      fc.property(inputs, (at) => {
        const plan = schedule(at);
        expect(refusals(at, plan.starts)).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });

  it("accounts for each queued job exactly once, with the reasons of those that wait", () => {
    fc.assert(
      fc.property(inputs, (at) => {
        const plan = schedule(at);
        const named = [...plan.starts, ...plan.pending].map(({ entry }) => entryKey(entry)).sort();
        expect(named).toEqual(at.queue.map(({ entry }) => entryKey(entry)).sort());
        for (const { blockers } of plan.pending) expect(blockers.length).toBeGreaterThan(0);
      }),
      { numRuns: 200 },
    );
  });

  // holds: sched-quotas
  it("never exceeds a project's quota of GPUs or GPU-hours, or maxConcurrentJobs", () => {
    fc.assert(
      fc.property(inputs, (at) => {
        const plan = schedule(at);
        const ids = new Set(plan.starts.map(({ entry }) => entryKey(entry)));
        const startedJobs = at.queue.filter(({ entry }) => ids.has(entryKey(entry)));
        const jobs = [...at.snapshot.running, ...startedJobs];
        expect(jobs.filter(({ kind }) => kind === "training").length).toBeLessThanOrEqual(20);
        for (const { project: name, quota } of at.snapshot.projects) {
          const mine = startedJobs.filter((job) => job.project === name);
          const held = [...mine, ...at.snapshot.running.filter((job) => job.project === name)];
          const milli = held.reduce((sum, job) => sum + holdings(job).gpuMilli, 0);
          expect(milli).toBeLessThanOrEqual(quota.gpuMilli!);
          const hours = mine.reduce((sum, job) => sum + boundGpuHours(job, at), 0);
          expect(hours).toBeLessThanOrEqual(quota.gpuHours!);
        }
      }),
      { numRuns: 200 },
    );
  });

  // holds: sched-priorities
  it("evicts only preemptible jobs of a lower level, each for a reservation", () => {
    fc.assert(
      fc.property(inputs, (at) => {
        const plan = schedule(at);
        for (const { victimId, forEntry } of plan.preemptions) {
          const victim = at.snapshot.running.find(({ id }) => id === victimId)!;
          const preemptor = at.queue.find((job) => isSameEntry(job.entry, forEntry))!;
          expect(victim.preemptible && !victim.evicting).toBe(true);
          expect(levelOf(victim)).toBeLessThan(levelOf(preemptor));
          expect(plan.reservations.map(({ entry }) => entryKey(entry))).toContain(
            entryKey(forEntry),
          );
        }
      }),
      { numRuns: 300 },
    );
  });

  it("gives the same plan for the same input", () => {
    fc.assert(
      fc.property(inputs, (at) => {
        expect(schedule(structuredClone(at))).toEqual(schedule(at));
      }),
      { numRuns: 100 },
    );
  });

  it("does not depend on the names of nodes", () => {
    fc.assert(
      fc.property(inputs, fc.infiniteStream(fc.string()), (at, names) => {
        const fresh = new Map(
          at.snapshot.nodes.map(({ id }, i) => [id, `${names.next().value}-${i}`]),
        );
        const rename = (text: string): unknown =>
          JSON.parse(text, (key, value) =>
            key === "nodeId" || (key === "id" && fresh.has(value)) ? fresh.get(value) : value,
          );
        const renamed = rename(JSON.stringify(at)) as SchedulingInput;
        expect(JSON.stringify(schedule(renamed))).toEqual(
          JSON.stringify(rename(JSON.stringify(schedule(at)))),
        );
      }),
      { numRuns: 100 },
    );
  });

  it("does not depend on the order of nodes", () => {
    const single = queues.map((jobs) => jobs.map((job) => ({ ...job, tasks: 1 })));
    fc.assert(
      fc.property(nodes, single, strategies, fc.nat(), (cluster, queue, defaultStrategy, seed) => {
        const alike = cluster.map((n) => ({ ...n, rack: "", labels: {} }));
        const jobs = queue.map((job) => ({
          ...job,
          request: { ...job.request, nodeAffinity: [] },
        }));
        const order = [...alike].sort((a, b) => hash(a.id, seed) - hash(b.id, seed));
        const settings = { defaultStrategy };
        const one = schedule(input({ nodes: alike }, jobs, { settings }));
        const other = schedule(input({ nodes: order }, jobs, { settings }));
        expect(kindsUsed(other, alike)).toEqual(kindsUsed(one, alike));
      }),
      { numRuns: 200 },
    );
  });

  it("lists running jobs past their bound, and reuses their places only later", () => {
    const old = running("old", [{ nodeId: "n", devices: [0] }]);
    const at = input({ nodes: [node("n", { gpus: 1 })], running: [old] }, [queued("next")], {
      nowMs: HOUR_MS,
    });
    const plan = schedule(at);
    expect(plan.expired).toEqual(["old"]);
    expect(plan.starts).toEqual([]);
    expect(plan.reservations[0]).toMatchObject({ entry: jobEntry("next"), startAtMs: HOUR_MS });
  });

  it("bounds a job by jobTimeoutMs even if its own bound is longer", () => {
    const at = input({ nodes: [node("n")] }, [queued("long", { maxRuntimeMs: 9 * HOUR_MS })], {
      settings: { jobTimeoutMs: 2 * HOUR_MS },
    });
    expect(schedule(at).starts[0]!.endsByMs).toBe(2 * HOUR_MS);
  });

  it("overcommits CPU and memory by overcommitRatio, GPUs and disk never", () => {
    const starts = (change: Parameters<typeof request>[0], overcommitRatio: number): number => {
      const jobs = ["a", "b", "c"].map((id) => queued(id, { request: request(change) }));
      const at = input({ nodes: [node("n", { gpus: 1 })] }, jobs, {
        settings: { overcommitRatio },
      });
      const { starts: started } = schedule(at);
      expect(refusals(at, started)).toEqual([]);
      return started.length;
    };
    const cpu = { gpus: 0, cpuMilli: 60_000 };
    expect([1, 1.25, 0.5].map((ratio) => starts(cpu, ratio))).toEqual([1, 2, 0]);
    const memory = { gpus: 0, memoryMib: 500_000 };
    expect([1, 1.5, 0.5].map((ratio) => starts(memory, ratio))).toEqual([1, 2, 0]);
    expect(starts({ gpus: 1 }, 2)).toBe(1);
    const disk = { gpus: 0, scalars: { ...request().scalars, localSsdGb: 600 } };
    expect(starts(disk, 2)).toBe(1);
  });

  it("lets a serving replica evict preemptible training of the same qos", () => {
    const training = running("t", [{ nodeId: "n", devices: [0] }], { priority: 900 });
    const serving = queued("s", { kind: "serving", maxRuntimeMs: undefined });
    const at = input({ nodes: [node("n", { gpus: 1 })], running: [training] }, [serving], {
      nowMs: 60_000,
    });
    const plan = schedule(at);
    expect(plan.preemptions).toEqual([
      { victimId: "t", forEntry: jobEntry("s"), lostGpuSeconds: 60 },
    ]);
    const after = advance(at, plan, at.nowMs + at.settings.preemptionGraceMs);
    expect(schedule(after).starts.map(({ entry }) => entryKey(entry))).toEqual(["s"]);
  });
});

function boundGpuHours(job: QueuedJob, { settings }: SchedulingInput): number {
  const bound = Math.min(runtimeBoundMs(job, settings), settings.jobTimeoutMs);
  return ((holdings(job).gpuMilli / 1000) * bound) / HOUR_MS;
}

function hash(text: string, seed: number): number {
  return [...text].reduce((h, c) => Math.imul(h ^ c.charCodeAt(0), 0x9e3779b1), seed);
}

/** For each start, the kinds of its nodes, without their names. */
function kindsUsed(plan: Plan, cluster: readonly NodeSnapshot[]): string[] {
  const byId = new Map(cluster.map((n) => [n.id, n]));
  return plan.starts.map(({ entry, placements }) => {
    const kinds = placements.map(({ nodeId }) => {
      const { gpuType, devices, capacity } = byId.get(nodeId)!;
      return `${gpuType} ${devices.filter(({ healthy }) => healthy).length} ${capacity.cpuMilli}`;
    });
    return `${entryKey(entry)} on ${kinds.join(", ")}`;
  });
}
