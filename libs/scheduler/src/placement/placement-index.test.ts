import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Ledger } from "../cluster/ledger.ts";
import { Roster } from "../cluster/roster.ts";
import { ShapeTable } from "../cluster/shape.ts";
import { nodes, requests, strategies } from "../testing/arbitraries.ts";
import { bestByScan } from "../testing/best-by-scan.ts";
import { node, request } from "../testing/scenarios.ts";
import { GangPlacer } from "./gang.ts";
import { PlacementIndex } from "./placement-index.ts";
import { Scorer } from "./scorer.ts";
import { Stranding } from "./stranding.ts";
import { countTargets, targetMix } from "./targets.ts";

describe("PlacementIndex", () => {
  it("picks the same node as a scan, after any placements and releases", () => {
    const steps = fc.array(
      fc.record({ kind: fc.nat({ max: 5 }), release: fc.boolean(), which: fc.nat() }),
      { maxLength: 60 },
    );
    const kinds = fc.array(requests, { minLength: 6, maxLength: 6 });
    fc.assert(
      fc.property(nodes, kinds, steps, strategies, (cluster, asked, moves, strategy) => {
        const ledger = Ledger.ofCapacity(new Roster(cluster), 1);
        const mix = targetMix(countTargets(asked.map((task) => ({ request: task, tasks: 1 }))));
        const scorer = new Scorer(strategy, ledger, new Stranding(mix));
        const index = new PlacementIndex(ledger, scorer);
        const shapes = new ShapeTable(new Roster(cluster));
        const placed: (() => void)[] = [];
        for (const { kind, release, which } of moves) {
          if (release && placed.length > 0) {
            placed.splice(which % placed.length, 1)[0]!();
            continue;
          }
          const shape = shapes.of(asked[kind]!);
          const chosen = index.of(shape).best();
          expect(chosen).toBe(bestByScan(ledger, scorer, shape, ledger.nodes.keys()));
          if (chosen === -1) continue;
          const devices = scorer.devices(chosen, shape);
          ledger.take(chosen, shape, devices);
          placed.push(() => ledger.release(chosen, shape, devices));
        }
      }),
      { numRuns: 300 },
    );
  });

  it("finds the one free node of a large cluster after more changes than it replays", () => {
    const cluster = Array.from({ length: 300 }, (_, i) => node(`n${i}`, { gpus: 1 }));
    const placer = new GangPlacer(
      Ledger.ofCapacity(new Roster(cluster), 1),
      new Stranding(targetMix([])),
    );
    const shapes = new ShapeTable(new Roster(cluster));
    const gang = { tasks: 1, sameRack: false, strategy: "binpack" } as const;
    const small = { ...gang, shape: shapes.of(request({ cpuMilli: 1 })) };
    const large = { ...gang, shape: shapes.of(request()) };
    expect(placer.place(small)).toBeDefined();
    for (let i = 0; i < 298; i++) expect(placer.place(large)).toBeDefined();
    expect(placer.place(small)).toBeDefined();
    expect(placer.place(small)).toBeUndefined();
    expect(placer.place(large)).toBeUndefined();
  });
});
