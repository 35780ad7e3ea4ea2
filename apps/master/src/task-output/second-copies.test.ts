// holds: artifacts-second-copy

import { globSync, rmSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";

const resources = { cpu_cores: 0.2, memory_gb: 0.2 };
let cluster: JobCluster;
let store: S3Server;

beforeAll(async () => {
  store = await startS3Server();
  for (const [name, value] of Object.entries(store.env)) vi.stubEnv(name, value);
  cluster = new JobCluster(1, { leaseMs: 15_000, nodeLostMs: 12_000 });
  await cluster.masters.startAll();
  await startWorker("worker-1");
});
afterEach((context) => cluster.clear(context));
afterAll(async () => {
  await cluster.close();
  await store.close();
});

/** With checkpoints on a separate disk. */
async function startWorker(name: string) {
  const checkpointDirectory = join(cluster.masters.folder, name, "checkpoints");
  await cluster.startWorker(name, { artifactReplica: "s3://heddle/copies", checkpointDirectory });
  await cluster.takesJobs(name);
}

async function lose(name: string) {
  await cluster.end(name, "SIGKILL");
  rmSync(join(cluster.masters.folder, name), { recursive: true, force: true });
}

async function artifact(id: string): Promise<string> {
  const path = `/api/v1/jobs/${id}/artifacts/x`;
  return (await cluster.masters.request("master-1", "GET", path)).text();
}

test("second copies in S3: artifacts and checkpoints outlive a worker and its disk", async () => {
  const saved = await cluster.submit({
    name: "saved",
    resources,
    command: "printf kept > $HEDDLE_ARTIFACT_DIR/x",
  });
  await cluster.reaches(saved, "succeeded");
  const line = '{\\"step\\": 41, \\"checkpoint\\": \\"c41\\"}';
  const running = await cluster.submit({
    name: "running",
    resources,
    command: [
      'if [ -z "$HEDDLE_RESUME_FROM" ]; then cd $HEDDLE_CHECKPOINT_DIR; mkdir c41; echo 41 > c41/step',
      `echo "${line}" >> $HEDDLE_PROGRESS_FILE; exec sleep 600; fi`,
      "cp $HEDDLE_CHECKPOINT_DIR/$HEDDLE_RESUME_FROM/step $HEDDLE_ARTIFACT_DIR/x",
    ].join("\n"),
  });
  await eventually(async () => {
    const job = await cluster.call<{ checkpoint: unknown }>("GET", `/jobs/${running}`);
    return job.checkpoint !== null;
  }, "its checkpoint is reported, and so copied");
  await startWorker("worker-2");
  await lose("worker-1");
  await cluster.reaches(running, "succeeded");
  expect(await artifact(running)).toBe("41\n");
  expect(await artifact(saved)).toBe("kept");
  await eventually(async () => {
    return globSync("copies/checkpoints/**/*_object", { cwd: store.directory }).length === 0;
  }, "the copies of its checkpoints go with the job");
});
