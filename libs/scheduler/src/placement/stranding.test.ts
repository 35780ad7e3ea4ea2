import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { WorkloadTarget } from "../model.ts";
import { request } from "../testing/scenarios.ts";
import { Stranding } from "./stranding.ts";
import { countTargets, targetMix } from "./targets.ts";

const targets: fc.Arbitrary<WorkloadTarget[]> = fc.array(
  fc.record({
    gpus: fc.constantFrom(0, 1, 1, 2),
    gpuMilli: fc.constantFrom(250, 500, 1000),
    gpuTypes: fc.constantFrom([], ["A"], ["B"]),
    cpuMilli: fc.integer({ min: 1, max: 16_000 }),
    weight: fc.integer({ min: 1, max: 9 }),
  }),
  { minLength: 1, maxLength: 8 },
);

describe("Stranding", () => {
  it("is FGD's fragmentation, target by target, plus the soft lack of CPU", () => {
    const devices = fc.array(fc.constantFrom<number>(0, 190, 500, 1000), {
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(targets, devices, fc.integer({ min: 0, max: 32_000 }), (list, free, cpu) => {
        const alike = list.map((t) => ({
          ...t,
          gpuMilli: t.gpus === 0 ? 0 : t.gpuMilli,
          weight: 1,
        }));
        const mix = targetMix(alike);
        const got = new Stranding(mix).gpus("A", Int32Array.from(free), 0, free.length, cpu);
        const total = free.reduce((sum, left) => sum + left, 0);
        expect(got).toBeCloseTo(total === 0 ? 0 : oneByOne(alike, free, cpu) / 1000 + starved(), 6);

        function starved(): number {
          const perGpu = 1.4 * mix.cpuPerGpu;
          return perGpu === 0 ? 0 : Math.log1p(Math.exp((total - cpu / perGpu) / 1000));
        }
      }),
    );
  });

  it("finds nothing stranded on a full node and everything on one no target may use", () => {
    const mix = targetMix([{ gpus: 1, gpuMilli: 1000, gpuTypes: ["A"], cpuMilli: 0, weight: 1 }]);
    const stranding = new Stranding(mix);
    expect(stranding.gpus("A", Int32Array.of(0, 0), 0, 2, 1_000)).toBe(0);
    expect(stranding.gpus("B", Int32Array.of(1000, 500), 0, 2, 1_000)).toBe(1.5);
  });
});

describe("targetMix", () => {
  it("keeps the commonest targets up to 95 % of the weight", () => {
    const target = (cpuMilli: number, weight: number) => ({
      gpus: 1,
      gpuMilli: 1000,
      gpuTypes: [],
      cpuMilli,
      weight,
    });
    const [group] = targetMix([target(1, 60), target(2, 36), target(3, 4)]).groups;
    expect(group!.cpuMilli).toEqual([1, 2]);
    expect(group!.cumulative.at(-1)).toBeCloseTo(1, 12);
  });

  it("counts each task of a job, and CPU per GPU over GPU tasks only", () => {
    const counted = countTargets([
      { request: request({ gpus: 2, cpuMilli: 8_000 }), tasks: 3 },
      { request: request({ gpus: 0, cpuMilli: 64_000 }), tasks: 1 },
    ]);
    expect(counted.map(({ weight }) => weight)).toEqual([3, 1]);
    expect(targetMix(counted).cpuPerGpu).toBe(4);
  });

  it("is empty for an empty workload", () => {
    expect(targetMix([])).toEqual({ groups: [], cpuPerGpu: 0 });
  });
});

/**
 * The paper's definition: for each target, all that is free or what is on devices too full. At most
 * eight targets of equal weight are all needed to cover 95 %.
 */
function oneByOne(list: readonly WorkloadTarget[], free: readonly number[], cpu: number): number {
  const total = free.reduce((sum, left) => sum + left, 0);
  const lost = list.map(({ gpus, gpuMilli, gpuTypes, cpuMilli }) => {
    const usable = gpus > 0 && (gpuTypes.length === 0 || gpuTypes.includes("A"));
    const hosts = free.filter((left) => left >= gpuMilli).length;
    if (!usable || hosts < gpus || cpu < cpuMilli) return total;
    return free.filter((left) => left < gpuMilli).reduce((sum, left) => sum + left, 0);
  });
  return lost.reduce((sum, each) => sum + each, 0) / lost.length;
}
