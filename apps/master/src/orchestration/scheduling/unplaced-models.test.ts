// holds: sched-hand-placed

import type { NodeOffer } from "@heddle/control/jobs/records/records";
import { modelOnDevice, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { createLogger } from "@heddle/observability/logger";
import { expect, test } from "vitest";
import { VolatileControl } from "../../../test/test-master.ts";
import { profileSeed, seedModels } from "../../control-plane/catalog/seed.ts";
import { replicaBlockers } from "./replica-blockers.ts";
import { Scheduling } from "./scheduling.ts";

const logger = createLogger({ service: "test", level: "silent" });
const noGpus = { gpuCount: 0, gpuType: "", gpuMemoryGb: 0 };

function join(control: VolatileControl, id: string, change: Partial<NodeOffer>) {
  return control.propose({ type: "node.join", atMs: 1, offer: nodeOffer(id, change) });
}

/** The blockers of the deployment in a new plan. */
async function waits(control: VolatileControl, deployment: string) {
  const { plans } = new Scheduling(control);
  await plans.refresh();
  return replicaBlockers(control.state, plans, deployment);
}

test("unplaced models: profile gpu's say what they wait for and that CPUs run them", async () => {
  const control = new VolatileControl();
  await seedModels(control, profileSeed("gpu"), logger);
  const [small, , large] = ["FamilyA-1-2B", "FamilyA-1-4B", "FamilyA-1-8B"].map(
    (id) => control.state.models.get(id)!.deployment,
  );
  await join(control, "cpu", noGpus);
  expect(await waits(control, large!)).toEqual([
    "InsufficientGpu: no node of the cluster has GPUs; it runs on a CPU, slowly, until a node with GPUs joins",
  ]);
  await join(control, "t4", { gpuCount: 1, gpuType: "T4", gpuMemoryGb: 16 });
  expect(await waits(control, small!)).toEqual([]);
  expect(await waits(control, large!)).toEqual([
    "InsufficientGpu: 1 of 2 nodes have no GPUs",
    "InsufficientGpu: 1 of 2 nodes have GPUs with less memory than `gpu_memory_gb`",
  ]);
});

test("unplaced models: one on a device that no node has says so", async () => {
  const control = new VolatileControl();
  await control.propose(modelOnDevice("m", "7", 1, 1));
  await join(control, "cpu", noGpus);
  await join(control, "four", { gpuCount: 4 });
  expect(await waits(control, "m")).toEqual([
    "InsufficientGpu: 1 of 2 nodes have no GPUs",
    "InsufficientGpu: 1 of 2 nodes have no GPU with the index of the requested device",
  ]);
});
