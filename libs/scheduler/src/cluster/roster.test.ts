// holds: sched-incremental

import fc from "fast-check";
import { expect, test } from "vitest";
import type { NodeSnapshot } from "../model.ts";
import { node, request } from "../testing/scenarios.ts";
import { Roster } from "./roster.ts";
import { ShapeTable } from "./shape.ts";

const nodes = fc
  .record({
    state: fc.constantFrom("ready" as const, "lost" as const),
    devices: fc.array(fc.record({ healthy: fc.boolean() }), { maxLength: 3 }),
    cpuMilli: fc.nat(3),
    memoryMib: fc.nat(9),
  })
  .map(({ cpuMilli, memoryMib, ...rest }) => {
    const { capacity } = node("");
    return node("", { ...rest, capacity: { ...capacity, cpuMilli, memoryMib } });
  });
const changes = fc.array(
  fc.record({ id: fc.nat(4), at: fc.option(nodes, { nil: undefined, freq: 3 }) }),
);

const sum = (numbers: readonly number[]) => numbers.reduce((total, each) => total + each, 0);

test("roster: sums and places are those of its nodes, after any changes", () => {
  const property = fc.property(changes, (steps) => {
    const roster = new Roster();
    const places: (string | undefined)[] = [];
    const known = new Map<string, NodeSnapshot>();
    for (const { id, at } of steps) {
      const name = `n${id}`;
      const place = places.indexOf(name);
      const isKnown = place >= 0;
      if (at) {
        const placed = { ...at, id: name };
        expect(roster.put(placed)).toBe(isKnown ? place : places.length);
        if (!isKnown) places.push(name);
        known.set(name, placed);
      } else {
        expect(roster.remove(name)).toBe(isKnown ? place : undefined);
        if (isKnown) places[place] = undefined;
        known.delete(name);
      }
    }
    const all = [...known.values()];
    const there = all.filter(({ state }) => state !== "lost");
    expect(roster.totals).toEqual({
      gpuMilli: 1000 * sum(there.map((at) => at.devices.filter((one) => one.healthy).length)),
      cpuMilli: sum(there.map(({ capacity }) => capacity.cpuMilli)),
      memoryMib: sum(there.map(({ capacity }) => capacity.memoryMib)),
    });
    expect(roster.widestCpuMilli).toBe(Math.max(1, ...all.map((at) => at.capacity.cpuMilli)));
    expect(roster.widestDevices).toBe(Math.max(1, ...all.map(({ devices }) => devices.length)));
    expect(roster.size).toBe(known.size);
    const named = places.filter((name) => name !== undefined);
    expect(roster.present()).toEqual(named.map((name) => known.get(name)));
    for (const [place, name] of places.entries()) {
      expect(roster.vacant(place)).toBe(name === undefined);
      if (name !== undefined) expect(roster.position(name)).toBe(place);
      if (name !== undefined) expect(roster.get(name)).toBe(known.get(name));
    }
    expect([roster.get("none"), roster.position("none")]).toEqual([undefined, undefined]);
  });
  fc.assert(property);
});

test("roster: says what changed since a version, unless that is too long ago", () => {
  const roster = new Roster([node("first")]);
  expect([roster.version, roster.changedSince(0)]).toEqual([0, new Set()]);
  for (let n = 1; n <= 10_000; n++) {
    if (n % 5 === 0) roster.remove(`n${n - 1}`);
    else roster.put(node(`n${n}`));
    expect(roster.version).toBe(n);
    if (n < 5) expect(roster.changedSince(0)?.size).toBe(n);
  }
  expect(roster.changedSince(10_000)).toEqual(new Set());
  expect(roster.changedSince(9_997)).toEqual(new Set(["n9998", "n9999"]));
  // At least a half of 4,096 changes is kept, and never more than all.
  expect(roster.changedSince(10_000 - 2_000)?.size).toBeGreaterThan(1_500);
  expect(roster.changedSince(10_000 - 4_097)).toBeUndefined();
});

test("shape table: needs a rebuild when most of its shapes are of ended jobs", () => {
  const filters = new ShapeTable(new Roster());
  for (let gb = 0; gb < 256 + 4 * 10; gb++) filters.of(request({ gpuMemoryGb: gb }));
  expect(filters.needsRebuild(10)).toBe(false);
  filters.of(request({ gpuMemoryGb: 999 }));
  expect([filters.needsRebuild(10), filters.needsRebuild(11)]).toEqual([true, false]);
  const shapes = new ShapeTable(new Roster());
  for (let cpuMilli = 0; cpuMilli < 20_010; cpuMilli++) shapes.of(request({ cpuMilli }));
  expect(shapes.needsRebuild(10)).toBe(false);
  shapes.of(request({ cpuMilli: 30_000 }));
  expect([shapes.needsRebuild(10), shapes.needsRebuild(11)]).toEqual([true, false]);
});
