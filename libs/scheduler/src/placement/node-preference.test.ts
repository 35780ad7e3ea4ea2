import { describe, expect, it } from "vitest";
import { Ledger } from "../cluster/ledger.ts";
import { Roster } from "../cluster/roster.ts";
import { ShapeTable } from "../cluster/shape.ts";
import { node, request } from "../testing/scenarios.ts";
import { compareAlike } from "./node-preference.ts";

const plain = node("a", { gpus: 2 });

describe("compareAlike", () => {
  it.each([
    ["gpu type", { gpuType: "Z" }],
    ["gpu memory", { gpuMemoryGb: 141 }],
    ["device count", { gpus: 3 }],
    ["free memory", { capacity: { ...plain.capacity, memoryMib: 1_000_000 } }],
    ["fabric", { fabric: "f1" }],
  ])("orders nodes that differ in %s the same way wherever they stand", (_, change) => {
    const other = node("b", { gpus: 2, ...change });
    expect(compareAlike(Ledger.ofCapacity(new Roster([plain, other]), 1), 0, 1)).toBeLessThan(0);
    expect(compareAlike(Ledger.ofCapacity(new Roster([other, plain]), 1), 0, 1)).toBeGreaterThan(0);
  });

  it("compares free devices as a set, whatever their order on the node", () => {
    const cluster = [plain, node("b", { gpus: 2 }), node("c", { gpus: 2 })];
    const ledger = Ledger.ofCapacity(new Roster(cluster), 1);
    const half = new ShapeTable(new Roster(cluster)).of(request({ gpuMilli: 500 }));
    ledger.take(0, half, [0]);
    ledger.take(1, half, [1]);
    expect(compareAlike(ledger, 0, 1)).toBe(-1);
    ledger.take(2, half, [0]);
    ledger.take(2, half, [0]);
    ledger.take(0, half, [1]);
    expect(compareAlike(ledger, 2, 0)).toBeLessThan(0);
    expect(compareAlike(ledger, 0, 2)).toBeGreaterThan(0);
  });
});

describe("Ledger", () => {
  it("offers whole thousandths of a core under any overcommit ratio", () => {
    const small = node("n", { capacity: { ...plain.capacity, cpuMilli: 7 } });
    expect(Ledger.ofCapacity(new Roster([small]), 1.5).scalarFree[0]).toBe(10);
  });

  it("refuses a node with more GPUs than it has columns for", () => {
    expect(() => Ledger.ofCapacity(new Roster([node("n", { gpus: 65 })]), 1)).toThrow(
      "65 GPUs, over 64",
    );
  });
});
