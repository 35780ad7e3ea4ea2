import { expect, it } from "vitest";
import { request } from "../testing/scenarios.ts";
import { countTargets, steadyTargets, TargetCounts } from "./targets.ts";

const mix = (whole: number, half: number) =>
  countTargets([
    { request: request(), tasks: whole },
    { request: request({ gpuMilli: 500 }), tasks: half },
  ]);

it("steady targets: the mix is kept until it differs by more than a twentieth", () => {
  const inUse = mix(50, 50);
  expect(steadyTargets(inUse, mix(540, 460))).toBe(inUse);
  const present = mix(56, 44);
  expect(steadyTargets(inUse, present)).toBe(present);
  expect(steadyTargets([], present)).toBe(present);
  expect(steadyTargets(inUse, [])).toEqual([]);
});

it("steady targets: tasks are counted up and down to zero", () => {
  const counts = new TargetCounts();
  counts.add(request(), 5);
  counts.add(request({ gpuMilli: 500 }), 2);
  counts.add(request(), -3);
  counts.add(request({ gpuMilli: 500 }), -2);
  expect(counts.targets()).toEqual(mix(2, 0).filter(({ weight }) => weight > 0));
});
