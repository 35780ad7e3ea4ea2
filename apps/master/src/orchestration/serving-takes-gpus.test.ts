// holds: engine-drain-replacement, sched-serving-quota, sched-hand-placed

import { eventually } from "@heddle/base/testing/eventually";
import { simulatedGpus } from "@heddle/node-agent/simulated-gpus";
import { afterEach, expect, test } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";

let cluster: JobCluster;

afterEach(() => cluster.close());

/** Resumes from its checkpoint, and writes one on request. */
const training = `
echo "attempt $HEDDLE_ATTEMPT from [$HEDDLE_RESUME_FROM]"
trap 'touch $HEDDLE_CHECKPOINT_DIR/c1; echo "{\\"step\\": 9, \\"checkpoint\\": \\"c1\\"}" >> $HEDDLE_PROGRESS_FILE' USR1
while :; do sleep 0.1; done`;

interface ModelAnswer {
  readonly status: string;
  readonly replicas: readonly { readonly phase: string; readonly device: string | null }[];
}

async function model(): Promise<ModelAnswer> {
  const reply = await cluster.masters.request("master-1", "GET", "/api/v1/models/m");
  return (await reply.json()) as ModelAnswer;
}

test("model: preempts a job for the only GPU, returns it, and moves without a gap", async () => {
  cluster = new JobCluster(1, { leaseMs: 30_000, nodeLostMs: 10_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1", { simulatedGpus: simulatedGpus("1xH100-80GB") });
  const id = await cluster.submit({
    name: "training",
    command: training,
    resources: { gpu_count: 1, gpu_type: "H100", cpu_cores: 0.2, memory_gb: 0.2 },
  });
  await cluster.reaches(id, "running");
  await eventually(
    async () => (await cluster.logs(id)).includes("attempt 1 from []"),
    "the job can be asked for a checkpoint",
  );
  const registered = await cluster.masters.request("master-1", "POST", "/api/v1/models", {
    id: "m",
    source: "builtin://tiny",
    resources: { gpu_count: 1, gpu_type: "H100" },
  });
  expect(registered.status).toBe(200);
  await eventually(async () => (await model()).status === "ready", "the model is ready");
  expect((await model()).replicas).toMatchObject([
    { phase: "ready", device: "gpu 0: H100 (simulated, on the CPU)" },
  ]);
  const waiting = await cluster.job(id);
  expect(waiting).toMatchObject({ state: "pending", attempt: 1, failure: null });
  const removed = await cluster.masters.request("master-1", "DELETE", "/api/v1/models/m");
  expect(removed.status).toBe(200);
  await cluster.reaches(id, "running");
  await eventually(
    async () => (await cluster.logs(id)).includes("attempt 2 from [c1]"),
    "it continues from its checkpoint",
  );
  // A device in the options is claimed as well: the replica starts on the node where that device is
  // free. On a draining node it serves until its replacement does, for which the job leaves again.
  await cluster.startWorker("worker-2", { simulatedGpus: simulatedGpus("1xH100-80GB") });
  await cluster.takesJobs("worker-2");
  await cluster.masters.request("master-1", "POST", "/api/v1/models", {
    id: "m",
    source: "builtin://tiny",
    options: { device: "0" },
  });
  await eventually(async () => (await model()).status === "ready", "the model is ready again");
  const { id: node } = await cluster.worker("worker-2");
  await cluster.call("POST", `/workers/${node}/drain`, { deadline_seconds: 600 });
  await eventually(async () => {
    expect((await model()).status).toBe("ready");
    return (await cluster.worker("worker-2")).jobs?.state === "drained";
  }, "the node is empty");
  await cluster.reaches(id, "pending");
});
