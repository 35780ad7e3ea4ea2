// holds: sched-hand-placed

import type { ControlCommand } from "@heddle/control/command";
import type { NodeOffer } from "@heddle/control/jobs/records/records";
import { modelOnDevice, nodeOffer, scheduledModel } from "@heddle/control/jobs/testing/specs";
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
  return replicaBlockers(control, plans, deployment);
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

test("unplaced models: stages say which GPUs they wait for, and what would start them", async () => {
  const control = new VolatileControl();
  await join(control, "one", { gpuCount: 1 });
  await join(control, "two", { gpuCount: 2 });
  const made = scheduledModel("m", 1, 1) as Extract<ControlCommand, { type: "model.register" }>;
  const spec = { ...made.deployment.spec, placement: { mode: "sharded" as const } };
  await control.propose({ ...made, deployment: { ...made.deployment, spec } } as ControlCommand);
  const hold = (nodeId: string, devices: number[]) =>
    control.propose({
      type: "node.update",
      atMs: 1,
      nodeId,
      serving: [{ deployment: "other", devices }],
    });
  const claim = { stages: 2, memoryBytes: 3 * 2 ** 20, nodes: ["one", "two"] };
  await control.propose({ type: "replica.claim", atMs: 1, deployment: "m", claim });
  expect(await waits(control, "m")).toEqual([
    "InsufficientGpu: 2 stages x 1 GPU with 3 MiB, each on another worker; free now: 2 of 2 on two, 1 of 1 on one; it starts when what is ahead of it in the queue has started",
  ]);
  await hold("one", [0]);
  expect(await waits(control, "m")).toEqual([
    "InsufficientGpu: 2 stages x 1 GPU with 3 MiB, each on another worker; free now: 2 of 2 on two, 0 of 1 on one (a model); it starts when 1 more GPU of one is free, or 1 more such worker joins",
  ]);
});
