// holds: sched-strategies, sched-explain

import fc from "fast-check";
import { expect, test } from "vitest";
import type { LabelSelector, NodeSnapshot, TaskRequest } from "../model.ts";
import { node, request } from "../testing/scenarios.ts";
import {
  countAway,
  countRejected,
  Eligibility,
  NODE_FILTERS,
  type NodeFilter,
  rejectedBy,
} from "./eligibility.ts";
import { Roster } from "./roster.ts";

const KEYS = ["zone", "disk"] as const;
const names = (...all: string[]) => fc.subarray(all);
const labels = fc.record(
  { zone: fc.constantFrom("x", "y"), disk: fc.constantFrom("x", "z"), "can/a": fc.constant("") },
  { requiredKeys: [] },
);
const nodes: fc.Arbitrary<NodeSnapshot> = fc
  .record({
    state: fc.constantFrom("ready", "ready", "ready", "lost", "draining", "drained"),
    gpus: fc.nat(2),
    gpuType: fc.constantFrom("A", "B"),
    gpuMemoryGb: fc.constantFrom(40, 80),
    fabric: fc.constantFrom("f", ""),
    taints: names("t", "u"),
    labels,
  })
  .map((each) => node("", each as Partial<NodeSnapshot>));
const selectors: fc.Arbitrary<LabelSelector[]> = fc.array(
  fc.record({
    key: fc.constantFrom(...KEYS),
    operator: fc.constantFrom("in", "not_in", "exists", "not_exists"),
    values: names("x", "y", "z"),
  }),
  { maxLength: 2 },
);
const requests: fc.Arbitrary<TaskRequest> = fc
  .record({
    gpus: fc.nat(1),
    gpuIndex: fc.constantFrom(undefined, undefined, 0, 1),
    gpuTypes: names("A", "B"),
    gpuMemoryGb: fc.constantFrom(0, 0, 40, 41),
    infiniband: fc.constantFrom(false, false, true),
    tolerations: names("t", "u"),
    nodeAffinity: selectors,
    nodeAntiAffinity: selectors,
    excludedNodes: fc.constantFrom(undefined, ["n0"], ["n1", "n2"]),
    offers: fc.constantFrom(undefined, [
      { kind: "profile" as const, name: "a", labelPrefix: "can/" },
    ]),
  })
  .map((each) => request(each));

/** The definition: the first of the filters, in their order, that rejects the node. */
function firstOf(of: TaskRequest, at: NodeSnapshot): NodeFilter | undefined {
  const isMatch = ({ key, operator, values }: LabelSelector) => {
    const value = at.labels[key];
    if (operator === "exists" || operator === "not_exists")
      return (value !== undefined) === (operator === "exists");
    return (value !== undefined && values.includes(value)) === (operator === "in");
  };
  const isGpu = of.gpus > 0;
  const rejects: Partial<Record<NodeFilter, boolean>> = {
    lost: at.state === "lost",
    state: at.state !== "ready",
    taint: at.taints.some((taint) => !of.tolerations.includes(taint)),
    profile: of.offers !== undefined && !("can/a" in at.labels),
    gpu: isGpu && at.devices.length === 0,
    gpu_index: isGpu && at.devices.length <= (of.gpuIndex ?? 0),
    gpu_type: isGpu && of.gpuTypes.length > 0 && !of.gpuTypes.includes(at.gpuType),
    gpu_memory: isGpu && at.gpuMemoryGb < of.gpuMemoryGb,
    affinity: !of.nodeAffinity.every(isMatch),
    anti_affinity: of.nodeAntiAffinity.some(isMatch),
    infiniband: of.infiniband && at.fabric === "",
    plugin: (of.excludedNodes ?? []).includes(at.id),
  };
  return NODE_FILTERS.find((filter) => rejects[filter]);
}

test("eligibility: a node is rejected by the first filter that its definition names", () => {
  const seen = new Set<NodeFilter | undefined>();
  const property = fc.property(requests, nodes, fc.nat(3), (of, one, id) => {
    const at = { ...one, id: `n${id}` };
    const filter = rejectedBy(of, at);
    expect(filter).toBe(firstOf(of, at));
    seen.add(filter);
  });
  fc.assert(property, { numRuns: 2_000 });
  expect(seen.size).toBeGreaterThan(11);
});

test("eligibility: filters follow nodes that join, change and leave", () => {
  const change = fc.record({ id: fc.nat(5), at: fc.option(nodes, { nil: undefined }) });
  const changes = fc.array(change, { maxLength: 20 });
  const property = fc.property(fc.array(requests, { minLength: 1 }), changes, (all, steps) => {
    const roster = new Roster([node("n0"), node("n1", { state: "lost" })]);
    const eligibility = new Eligibility(roster);
    const filters = all.map((of) => eligibility.of(of));
    for (const { id, at } of steps) {
      const name = `n${id}`;
      const position = at ? roster.put({ ...at, id: name }) : roster.remove(name);
      if (position !== undefined) eligibility.follow(position);
    }
    for (const [i, of] of all.entries()) {
      expect(eligibility.of(of)).toBe(filters[i]);
      const counts = new Map<NodeFilter, number>();
      let [draining, present] = [0, 0];
      for (const [position, at] of roster.slots.entries()) {
        const isEligible = !roster.vacant(position) && firstOf(of, at) === undefined;
        expect(filters[i]?.eligible[position]).toBe(isEligible ? 1 : 0);
        if (roster.vacant(position)) continue;
        const filter = firstOf(of, at);
        if (filter) counts.set(filter, (counts.get(filter) ?? 0) + 1);
        if (firstOf(of, { ...at, state: "ready" }) !== undefined) continue;
        draining += at.state === "draining" ? 1 : 0;
        present++;
      }
      expect(countRejected(roster, filters[i]!)).toEqual(counts);
      expect(countAway(roster, filters[i]!, ["draining"])).toBe(draining);
      const everyState = ["ready", "lost", "draining", "drained"] as const;
      expect(countAway(roster, filters[i]!, everyState)).toBe(present);
    }
  });
  fc.assert(property);
});

test("eligibility: requests that differ in a filter alone have filters of their own", () => {
  const property = fc.property(requests, requests, (a, b) => {
    const eligibility = new Eligibility(new Roster());
    const fields = ({ offers, gpuIndex, excludedNodes, ...rest }: TaskRequest) =>
      JSON.stringify({ ...rest, offers: offers ?? [], gpuIndex, excluded: excludedNodes ?? [] });
    expect(eligibility.of(a) === eligibility.of(b)).toBe(fields(a) === fields(b));
    expect(eligibility.size).toBe(fields(a) === fields(b) ? 1 : 2);
    const amounts = { ...a, scalars: { ...a.scalars, cpuMilli: 7 }, gpus: a.gpus * 2 };
    expect(eligibility.of(amounts)).toBe(eligibility.of(a));
  });
  fc.assert(property);
});

test("eligibility: 10,000 nodes are evaluated in steps of 512", () => {
  const roster = new Roster(Array.from({ length: 10_000 }, (_, at) => node(`n${at}`)));
  expect([...new Eligibility(roster).ofInSteps(request())]).toHaveLength(Math.floor(10_000 / 512));
});
