import { afterEach, expect, test } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";
import { eventually } from "../../test/master-group.ts";

let cluster: JobCluster;

afterEach(() => cluster.close());

test("a command of two tasks runs through a master and workers; its logs and end are told", async () => {
  cluster = new JobCluster(1, { leaseMs: 30_000, nodeLostMs: 10_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const id = await cluster.submit({
    name: "two",
    command: 'echo "rank $RANK of $WORLD_SIZE, $HEDDLE_PEERS"; echo warn >&2',
    tasks: 2,
    resources: { cpu_cores: 0.2, memory_gb: 0.2 },
  });
  const job = await cluster.reaches(id, "succeeded");
  expect(job).toMatchObject({ attempt: 1, failure: null });
  await eventually("all lines are there", async () => {
    const lines = (await cluster.logs(id)).trim().split("\n");
    return lines.length === 4 && (await cluster.logs(id, "rank=1&stream=stderr")) === "warn\n";
  });
  expect(await cluster.logs(id, "rank=1&stream=stdout&follow=true")).toMatch(
    /^rank 1 of 2, 127\.0\.0\.1:\d+,127\.0\.0\.1:\d+\n$/,
  );
});
