// holds: sched-ledger

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { NodeScalars, NodeSnapshot, TaskRequest } from "../model.ts";
import { nodes, requests } from "../testing/arbitraries.ts";
import { Ledger } from "./ledger.ts";
import { Roster } from "./roster.ts";
import { type RequestShape, ShapeTable } from "./shape.ts";

// The expected amounts are recomputed from the nodes and the held tasks, without any code of the
// ledger, its units or its shapes.

const NAMES = [
  "cpuMilli",
  "memoryMib",
  "localSsdGb",
  "ioOperationsPerSec",
  "networkMbps",
  "tasks",
] as const;
const ENOUGH = 100;

interface Held {
  readonly node: number;
  readonly task: TaskRequest;
  readonly devices: readonly number[];
}

/** What is free on a node: thousandths by device, and the scalars. */
interface Free {
  readonly gpus: number[];
  readonly scalars: NodeScalars;
}

/** Sums in hundredths, so that the ratio brings no rounding of its own. */
function freeOn(node: NodeSnapshot, ratioPercent: number, held: readonly Held[]): Free {
  const overcommitted = ["cpuMilli", "memoryMib"];
  const scalars = Object.fromEntries(
    NAMES.map((name) => {
      const percent = overcommitted.includes(name) ? ratioPercent : 100;
      const hundredths = node.capacity[name] * percent;
      const whole = (hundredths - (hundredths % 100)) / 100;
      return [name, whole - held.reduce((sum, { task }) => sum + task.scalars[name], 0)];
    }),
  );
  const gpus = node.devices.map(({ healthy }, device) => {
    const holders = held.filter(({ devices }) => devices.includes(device));
    return healthy ? 1000 - holders.reduce((sum, { task }) => sum + task.gpuMilli, 0) : 0;
  });
  return { gpus, scalars: scalars as unknown as NodeScalars };
}

/** The devices that the task takes, the first that have room; undefined if it does not fit. */
function devicesFor({ gpus, scalars }: Free, task: TaskRequest): number[] | undefined {
  if (NAMES.some((name) => task.scalars[name] > 0 && task.scalars[name] > scalars[name])) return;
  if (task.gpus === 0) return [];
  const able = [...gpus.keys()].filter(
    (device) =>
      gpus[device]! >= task.gpuMilli && (task.gpuIndex === undefined || device === task.gpuIndex),
  );
  return able.length >= task.gpus ? able.slice(0, task.gpus) : undefined;
}

/** Places the task repeatedly until it does not fit, or once where a gang has one on a node. */
function copiesOn(free: Free, task: TaskRequest): number {
  const gpus = [...free.gpus];
  const scalars = { ...free.scalars };
  const enough = task.onePerNode ? 1 : ENOUGH;
  for (let copies = 0; copies < enough; copies++) {
    const devices = devicesFor({ gpus, scalars }, task);
    if (!devices) return copies;
    for (const device of devices) gpus[device]! -= task.gpuMilli;
    for (const name of NAMES) {
      (scalars as Record<string, number>)[name]! -= task.scalars[name];
    }
  }
  return enough;
}

const amounts = fc.record({
  localSsdGb: fc.constantFrom(0, 7, 60),
  ioOperationsPerSec: fc.constantFrom(0, 3, 400),
  networkMbps: fc.constantFrom(0, 11, 500),
  tasks: fc.constantFrom(0, 1, 3),
});
/** Two of 500 fill a device; one of 501 exceeds it beside one of 500 by a thousandth. */
const shares = fc.constantFrom(499, 500, 501);
const tasks = fc.tuple(requests, amounts, shares).map(([task, more, share]) => ({
  ...task,
  gpuMilli: task.gpuMilli < 1000 ? share : task.gpuMilli,
  scalars: { ...task.scalars, ...more },
}));
const steps = fc.array(
  fc.record({
    kind: fc.nat({ max: 4 }),
    release: fc.constantFrom(false, false, true),
    which: fc.nat(),
  }),
  { minLength: 30, maxLength: 60 },
);

function expectEqual(
  ledger: Ledger,
  at: number,
  free: Free,
  kinds: readonly { readonly task: TaskRequest; readonly shape: RequestShape }[],
): void {
  expect(ledger.rowOf(at)).toEqual([...free.gpus, ...NAMES.map((name) => free.scalars[name])]);
  expect(ledger.gpuFreeMilli(at)).toBe(free.gpus.reduce((sum, milli) => sum + milli, 0));
  for (const { task, shape } of kinds) {
    if (shape.eligible[at] === 0) continue;
    expect(ledger.fits(at, shape)).toBe(devicesFor(free, task) !== undefined);
    expect(ledger.copies(at, shape, ENOUGH)).toBe(copiesOn(free, task));
  }
}

describe("Ledger", () => {
  it("free amounts equal the offers less the held tasks, counted one by one", () => {
    const ratios = fc.constantFrom(50, 100, 133);
    const kindsOf = fc.array(tasks, { minLength: 5, maxLength: 5 });
    let taken = 0;
    let released = 0;
    fc.assert(
      fc.property(nodes, kindsOf, steps, ratios, (cluster, asked, moves, percent) => {
        const roster = new Roster(cluster);
        const ledger = Ledger.ofCapacity(roster, percent / 100);
        const shapes = new ShapeTable(roster);
        const kinds = asked.map((task) => ({ task, shape: shapes.of(task) }));
        const held: Held[] = [];
        for (const { kind, release, which } of moves) {
          const { task, shape } = kinds[kind]!;
          let at = which % cluster.length;
          const on = () => held.filter(({ node }) => node === at);
          const free = () => freeOn(roster.slots[at]!, percent, on());
          if (release && held.length > 0) {
            const [gone] = held.splice(which % held.length, 1);
            at = gone!.node;
            ledger.release(at, shapes.of(gone!.task), gone!.devices);
            released++;
          } else {
            const devices = shape.eligible[at] === 0 ? undefined : devicesFor(free(), task);
            if (!devices) continue;
            ledger.take(at, shape, devices);
            held.push({ node: at, task, devices });
            taken++;
          }
          expectEqual(ledger, at, free(), kinds);
          expectEqual(ledger.clone(), at, free(), kinds);
        }
      }),
      { numRuns: 150 },
    );
    expect(Math.min(taken, released)).toBeGreaterThan(100);
  });
});
