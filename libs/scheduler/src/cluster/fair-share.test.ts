// holds: sched-fair-share

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { entryKey } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { HOUR_MS, input, node, project, queued, request } from "../testing/scenarios.ts";
import { decayedUsage, FairShare, holdings } from "./fair-share.ts";

const NOTHING = { gpuMilliMs: 0, cpuMilliMs: 0, memoryMibMs: 0, asOfMs: 0 };
const NOTHING_HELD = { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };
const HELD = { gpuMilli: 3_000, cpuMilli: 500, memoryMib: 64 };

const small = (change: { cpuMilli: number; memoryMib: number }) =>
  node("n", {
    gpus: 0,
    capacity: { ...change, localSsdGb: 0, ioOperationsPerSec: 0, networkMbps: 0, tasks: 10_000 },
  });

describe("dominant resource fairness", () => {
  it("gives the shares of the example in the paper: 3 tasks to A, 2 to B", () => {
    // Ghodsi et al., NSDI 2011, section 4.1: 9 CPUs and 18 GB; A asks <1, 4>, B asks <3, 1>.
    const tasks = (name: string, cpuMilli: number, memoryMib: number) =>
      Array.from({ length: 9 }, (_, i) =>
        queued(`${name}${i}`, {
          project: name,
          request: request({ gpus: 0, cpuMilli, memoryMib }),
        }),
      );
    const queue = [...tasks("A", 1_000, 4_096), ...tasks("B", 3_000, 1_024)];
    const plan = schedule(input({ nodes: [small({ cpuMilli: 9_000, memoryMib: 18_432 })] }, queue));
    const of = (name: string) =>
      plan.starts.filter(({ entry }) => entryKey(entry).startsWith(name)).length;
    expect([of("A"), of("B")]).toEqual([3, 2]);
  });

  it("splits equal demand by weight", () => {
    const queue = ["heavy", "light"].flatMap((name) =>
      Array.from({ length: 12 }, (_, i) => queued(`${name}${i}`, { project: name })),
    );
    const projects = [project("heavy", { weight: 3 }), project("light", { weight: 1 })];
    const plan = schedule(input({ nodes: [node("n", { gpus: 8 })], projects }, queue));
    const heavy = plan.starts.filter(({ entry }) => entryKey(entry).startsWith("heavy")).length;
    expect([heavy, plan.starts.length]).toEqual([6, 8]);
  });

  it("keeps the weighted shares of projects with enough equal tasks within one task", () => {
    const weights = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 5 });
    fc.assert(
      fc.property(weights, fc.integer({ min: 4, max: 40 }), (each, gpus) => {
        const names = each.map((_, i) => `p${i}`);
        const queue = names.flatMap((name) =>
          Array.from({ length: gpus }, (_, i) =>
            queued(`${name}-${i}`, { project: name, request: request({ cpuMilli: 1 }) }),
          ),
        );
        const nodes = Array.from({ length: gpus }, (_, i) => node(`n${i}`, { gpus: 1 }));
        const projects = names.map((name, i) => project(name, { weight: each[i]! }));
        const { starts } = schedule(input({ nodes, projects }, queue));
        const held = names.map(
          (name, i) =>
            starts.filter(({ entry }) => entryKey(entry).startsWith(`${name}-`)).length / each[i]!,
        );
        const oneTask = Math.max(...each.map((weight) => 1 / weight));
        expect(starts.length).toBe(gpus);
        expect(Math.max(...held) - Math.min(...held)).toBeLessThanOrEqual(oneTask + 1e-9);
      }),
      { numRuns: 60 },
    );
  });

  it("a project with past use waits behind one without", () => {
    const usage = { ...NOTHING, gpuMilliMs: 8_000 * HOUR_MS };
    const queue = [
      queued("a", { project: "used" }),
      queued("b", { project: "fresh", submittedAtMs: 1 }),
    ];
    const projects = [project("used", { usage }), project("fresh")];
    const plan = schedule(input({ nodes: [node("n", { gpus: 1 })], projects }, queue));
    expect(plan.starts.map(({ entry }) => entryKey(entry))).toEqual(["b"]);
  });

  it("counts what a job holds over all its tasks", () => {
    const job = queued("j", { tasks: 3, request: request({ gpus: 2, cpuMilli: 5, memoryMib: 7 }) });
    expect(holdings(job)).toEqual({ gpuMilli: 6_000, cpuMilli: 15, memoryMib: 21 });
  });

  it("gives a share of 0 to an unknown project", () => {
    const capacity = { gpuMilli: 8_000, cpuMilli: 96_000, memoryMib: 786_432 };
    const noHolders = { projectOf: () => undefined, heldBy: () => NOTHING_HELD };
    const shares = new FairShare({ capacity, ...noHolders, nowMs: 0, halfLifeMs: HOUR_MS });
    expect(shares.share("new")).toBe(0);
  });
});

describe("decayedUsage", () => {
  it("halves what was used of each amount in a half-life", () => {
    const used = { gpuMilliMs: 8, cpuMilliMs: 16, memoryMibMs: 32, asOfMs: 0 };
    const half = { gpuMilliMs: 4, cpuMilliMs: 8, memoryMibMs: 16, asOfMs: HOUR_MS };
    expect(decayedUsage(used, NOTHING_HELD, HOUR_MS, HOUR_MS)).toEqual(half);
    // A clock that is behind adds nothing.
    expect(decayedUsage({ ...used, asOfMs: 1 }, HELD, 0, HOUR_MS)).toEqual(used);
  });

  it("halves past use every half-life", () => {
    const usage = { ...NOTHING, gpuMilliMs: 1_000 };
    const later = decayedUsage(
      usage,
      { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 },
      2 * HOUR_MS,
      HOUR_MS,
    );
    expect(later.gpuMilliMs).toBeCloseTo(250, 9);
  });

  it("is the same whether updated once or in steps", () => {
    const steps = fc.array(fc.integer({ min: 0, max: 5 * HOUR_MS }), {
      minLength: 1,
      maxLength: 6,
    });
    fc.assert(
      fc.property(steps, (durations) => {
        let stepped = NOTHING;
        let nowMs = 0;
        for (const durationMs of durations) {
          nowMs += durationMs;
          stepped = decayedUsage(stepped, HELD, nowMs, HOUR_MS);
        }
        const atOnce = decayedUsage(NOTHING, HELD, nowMs, HOUR_MS);
        expect(Math.abs(stepped.gpuMilliMs - atOnce.gpuMilliMs)).toBeLessThan(1e-3);
        expect(stepped.asOfMs).toBe(nowMs);
      }),
    );
  });
});
