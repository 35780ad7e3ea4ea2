// holds: sched-strategies

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Ledger } from "../cluster/ledger.ts";
import { Roster } from "../cluster/roster.ts";
import { ShapeTable } from "../cluster/shape.ts";
import type { NodeSnapshot, Strategy } from "../model.ts";
import { nodes, requests, strategies } from "../testing/arbitraries.ts";
import { node, request } from "../testing/scenarios.ts";
import { GangPlacer, gangFits, tasksThatFit } from "./gang.ts";
import { Stranding } from "./stranding.ts";
import { targetMix } from "./targets.ts";

function placerOn(cluster: NodeSnapshot[]) {
  const placer = new GangPlacer(
    Ledger.ofCapacity(new Roster(cluster), 1),
    new Stranding(targetMix([])),
  );
  return { placer, shapes: new ShapeTable(new Roster(cluster)) };
}

function placed(cluster: NodeSnapshot[], strategy: Strategy, tasks: number, task = request()) {
  const { placer, shapes } = placerOn(cluster);
  const gang = { shape: shapes.of(task), tasks, sameRack: false, strategy };
  return placer.place(gang)?.tasks.map(({ node: at }) => cluster[at]!.id);
}

describe("GangPlacer", () => {
  it("places a gang exactly when the count of copies fits, else changes nothing", () => {
    const asked = fc.record({
      task: requests,
      tasks: fc.integer({ min: 1, max: 9 }),
      sameRack: fc.boolean(),
      strategy: strategies,
    });
    fc.assert(
      fc.property(nodes, fc.array(asked, { maxLength: 8 }), (cluster, gangs) => {
        const { placer, shapes } = placerOn(cluster);
        for (const { task, ...rest } of gangs) {
          const gang = { ...rest, shape: shapes.of(task) };
          const before = placer.ledger.clone();
          const fits = gangFits(before, gang);
          expect(tasksThatFit(before, gang) >= gang.tasks).toBe(fits);
          const places = placer.place(gang);
          expect(places?.tasks.length).toBe(fits ? gang.tasks : undefined);
          if (fits) continue;
          expect(placer.ledger.gpuFree).toEqual(before.gpuFree);
          expect(placer.ledger.scalarFree).toEqual(before.scalarFree);
        }
      }),
      { numRuns: 300 },
    );
  });

  it("binpack fills the fuller node, spread goes to the emptier", () => {
    const cluster = [node("wide", { gpus: 8 }), node("narrow", { gpus: 2 })];
    expect(placed(cluster, "binpack", 2)).toEqual(["narrow", "narrow"]);
    expect(placed(cluster, "spread", 2)).toEqual(["wide", "wide"]);
  });

  it("gangs with a task a node fit if that many nodes have room", () => {
    const cluster = [node("wide", { gpus: 8 }), node("narrow", { gpus: 1 })];
    const apart = request({ onePerNode: true });
    expect(placed(cluster, "binpack", 2, apart)?.sort()).toEqual(["narrow", "wide"]);
    expect(placed(cluster, "binpack", 3, apart)).toBeUndefined();
    const task = { ...apart, nodeRanks: [{ nodeId: "wide", rank: 1 }] };
    expect(placed(cluster, "binpack", 1, task)).toEqual(["wide"]);
  });

  it("binpack puts shares on one device, spread on different ones", () => {
    const share = request({ gpuMilli: 250 });
    const devices = (strategy: Strategy) => {
      const { placer, shapes } = placerOn([node("n", { gpus: 4 })]);
      const gang = { shape: shapes.of(share), tasks: 3, sameRack: false, strategy };
      return placer.place(gang)!.tasks.map(({ devices: [device] }) => device);
    };
    expect(new Set(devices("binpack")).size).toBe(1);
    expect(new Set(devices("spread")).size).toBe(3);
  });

  it("fragmentation puts a share on the fuller device if stranding is equal", () => {
    const { placer, shapes } = placerOn([node("n", { gpus: 2 })]);
    const place = (gpuMilli: number) => {
      const shape = shapes.of(request({ gpuMilli }));
      const gang = { shape, tasks: 1, sameRack: false, strategy: "fragmentation" } as const;
      return placer.place(gang)!.tasks[0]!.devices;
    };
    expect([place(500), place(250), place(900)]).toEqual([[0], [0], [1]]);
  });

  it("fragmentation weighs a stranded GPU above any best fit", () => {
    const target = { gpuMilli: 1_000, gpuTypes: [], cpuMilli: 100 };
    const targets = [
      { ...target, gpus: 1, weight: 9 },
      { ...target, gpus: 4, weight: 1 },
    ];
    const capacity = { ...node("n").capacity, cpuMilli: 16_000 };
    // One GPU of the narrow node less, and no task of four fits there; it is the better fit by far.
    const cluster = [node("wide", { gpus: 16 }), node("narrow", { gpus: 4, capacity })];
    const stranding = new Stranding(targetMix(targets));
    const placer = new GangPlacer(Ledger.ofCapacity(new Roster(cluster), 1), stranding);
    const shape = new ShapeTable(new Roster(cluster)).of(request({ cpuMilli: 100 }));
    const gang = { shape, tasks: 1, sameRack: false } as const;
    const at = (strategy: Strategy) => placer.place({ ...gang, strategy })!.tasks[0]!.node;
    expect([at("fragmentation"), at("binpack")].map((position) => cluster[position]!.id)).toEqual([
      "wide",
      "narrow",
    ]);
  });

  it("keeps a same-rack gang in the rack with the least free capacity", () => {
    const cluster = [
      node("a", { gpus: 8, rack: "wide" }),
      node("b", { gpus: 2, rack: "tight" }),
      node("c", { gpus: 2, rack: "tight" }),
      node("d", { gpus: 8, rack: "" }),
    ];
    const { placer, shapes } = placerOn(cluster);
    const gang = {
      shape: shapes.of(request()),
      tasks: 4,
      sameRack: true,
      strategy: "spread",
    } as const;
    const racks = placer.place(gang)!.tasks.map(({ node: at }) => cluster[at]!.rack);
    expect(racks).toEqual(["tight", "tight", "tight", "tight"]);
  });

  it.each([false, true])("gang: nodes without a rack are not one rack, fabric %s", (infiniband) => {
    const gangOf = (rack: string) => {
      const cluster = ["a", "b"].map((id) => node(id, { gpus: 1, rack, fabric: "f" }));
      const { placer, shapes } = placerOn(cluster);
      const shape = shapes.of(request({ infiniband }));
      return placer.place({ shape, tasks: 2, sameRack: true, strategy: "binpack" });
    };
    expect(gangOf("r1")?.tasks).toHaveLength(2);
    expect(gangOf("")).toBeUndefined();
  });

  it("keeps an InfiniBand gang on one fabric, and off nodes without one", () => {
    const cluster = ["f1", "f2", "f2", ""].map((fabric, i) => node(`n${i}`, { gpus: 1, fabric }));
    const task = request({ infiniband: true });
    expect(placed(cluster, "binpack", 2, task)?.sort()).toEqual(["n1", "n2"]);
    expect(placed(cluster, "binpack", 3, task)).toBeUndefined();
  });

  it("respects each label operator, for affinity and anti-affinity", () => {
    const cluster = [node("a", { gpus: 1, labels: { zone: "x" } }), node("b", { gpus: 1 })];
    const where = (operator: "in" | "not_in" | "exists" | "not_exists") => {
      const selector = { key: "zone", operator, values: ["x"] };
      return [
        placed(cluster, "binpack", 1, request({ nodeAffinity: [selector] })),
        placed(cluster, "binpack", 1, request({ nodeAntiAffinity: [selector] })),
      ].flat();
    };
    expect(where("in")).toEqual(["a", "b"]);
    expect(where("not_in")).toEqual(["b", "a"]);
    expect(where("exists")).toEqual(["a", "b"]);
    expect(where("not_exists")).toEqual(["b", "a"]);
  });

  it("avoids tainted nodes unless every taint is tolerated", () => {
    const cluster = [node("n", { taints: ["spot", "old"] })];
    expect(placed(cluster, "binpack", 1, request({ tolerations: ["spot"] }))).toBeUndefined();
    expect(placed(cluster, "binpack", 1, request({ tolerations: ["spot", "old"] }))).toEqual(["n"]);
  });

  it("crashes on a share of several devices, which validation should refuse", () => {
    expect(() => placed([node("n")], "binpack", 1, request({ gpus: 2, gpuMilli: 500 }))).toThrow(
      "a share is of one device",
    );
  });

  it("crashes on a fractional amount, which validation should round", () => {
    expect(() => placed([node("n")], "binpack", 1, request({ cpuMilli: 0.5 }))).toThrow(
      "cpuMilli must be an integer >= 0, got 0.5",
    );
  });
});
