// holds: shard-gpus

import { seededRandom } from "@heddle/base/random";
import { expect, onTestFinished, test } from "vitest";
import { GpuCluster } from "./testing/gpu-cluster.ts";

/** Longer than a lost stage is awaited, and its replica's GPUs are kept. */
const CALM_S = 120;

/** Workers with a GPU each, and models with these numbers of stages. */
function clusterOf(workers: number, stages: readonly number[]): GpuCluster {
  const cluster = new GpuCluster();
  onTestFinished(() => cluster.close());
  for (let i = 0; i < workers; i++) cluster.join(`w${i}`);
  for (const [i, count] of stages.entries()) cluster.register(`m${i}`, count);
  return cluster;
}

test("GPUs of stages: of two models that lack a stage one gets the other's GPU", async () => {
  for (const harm of ["worker", "GPU"]) {
    const cluster = clusterOf(4, [2, 2]);
    await cluster.pass(CALM_S);
    const before = cluster.complete();
    expect(before.size).toBe(2);
    for (const [first = ""] of before.values()) {
      if (harm === "worker") cluster.lose(first);
      else cluster.setFailed(first, true);
    }
    await cluster.pass(CALM_S);
    expect(cluster.complete().size).toBe(1);
  }
});

test("GPUs of stages: whatever is lost, none holds a part while others could run", async () => {
  for (let seed = 1; seed <= 5; seed++) {
    const random = seededRandom(seed);
    const below = (count: number) => Math.floor(random() * count);
    const stages = Array.from({ length: 3 }, () => 2 + below(2));
    const names = Array.from({ length: 8 }, (_, i) => `w${i}`);
    const cluster = clusterOf(names.length, stages);
    for (let calm = 0; calm < 3; calm++) {
      for (let change = 0; change < 5; change++) {
        const id = names[below(names.length)]!;
        if (!cluster.workers.includes(id)) cluster.join(id);
        else if (below(2) === 0) cluster.lose(id);
        else cluster.setFailed(id, below(2) === 0);
        await cluster.pass(below(40));
      }
      await cluster.pass(2 * CALM_S);
      expect(cluster.stuck(), `seed ${seed}, ${calm}`).toEqual([]);
      for (const [i] of stages.entries()) {
        const nodes = [...(cluster.complete().get(`m${i}`) ?? [])].sort();
        expect(cluster.held(`m${i}`), `seed ${seed}, ${calm}`).toEqual(nodes);
      }
    }
  }
});
