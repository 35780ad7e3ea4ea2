// holds: logs-replaced

import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { expect, type TestContext, test } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";

const leaseMs = 16_000;

const simulatedGpus = [
  {
    index: 0,
    uuid: "simulated-0",
    name: "H100",
    memoryBytes: 80 * 2 ** 30,
    fault: "",
    simulated: true,
  },
];

/** Two tasks, one of them lost and replaced; resolves with its log once the replacement writes. */
async function logOfReplaced(
  workers: readonly string[],
  onTestFinished: TestContext["onTestFinished"],
) {
  const cluster = new JobCluster(1, { leaseMs, nodeLostMs: 14_000 });
  onTestFinished(() => cluster.close());
  await cluster.masters.startAll();
  await Promise.all(workers.map((name) => cluster.startWorker(name, { simulatedGpus })));
  for (const name of workers) await cluster.takesJobs(name);
  const id = await cluster.submit({
    name: "replaced",
    tasks: 2,
    failure_tolerance: 1,
    resources: { gpu_count: 2, cpu_cores: 0.2, memory_gb: 0.2 },
    command:
      'echo "start of $HEDDLE_NODE"; i=0; while :; do i=$((i+1)); echo "line $i"; sleep 0.2; done',
  });
  await cluster.reaches(id, "running");
  const holder = (await cluster.job(id)).task_list[1]?.node_name ?? "";
  const log = () => cluster.logs(id, "rank=1&stream=stdout");
  await eventually(async () => (await log()).includes("line 5\n"), "it has written");
  cluster.signal(holder, "SIGSTOP");
  // A worker that wakes within its lease would still have its task.
  await delay(leaseMs + 1_000);
  if (workers.length === 2) {
    await eventually(async () => (await cluster.job(id)).state === "recovering", "it is lost");
    cluster.signal(holder, "SIGCONT");
  }
  await eventually(async () => {
    return ((await log()).split("start of ")[2] ?? "").includes("line 9\n");
  }, "the replacement has written");
  const second = (await cluster.job(id)).task_list[1]?.node_name ?? "";
  cluster.signal(holder, "SIGCONT");
  await cluster.call("DELETE", `/jobs/${id}`);
  await cluster.reaches(id, "cancelled");
  expect((await cluster.job(id)).attempt).toBe(1);
  return {
    first: holder,
    second,
    text: await cluster.logs(id, "rank=1&stream=stdout&follow=true"),
  };
}

/** The lines of both are complete and in order, each from its first on. */
function expectBoth({ first, second, text }: Awaited<ReturnType<typeof logOfReplaced>>): void {
  const lives = text.split(/^(?=start of )/m);
  expect(lives.map((life) => life.split("\n")[0])).toEqual([
    `start of ${first}`,
    `start of ${second}`,
  ]);
  for (const life of lives) {
    const [, ...lines] = life.trimEnd().split("\n");
    expect(lines).toEqual(lines.map((_, i) => `line ${i + 1}`));
  }
}

test.concurrent("replaced rank: on the worker that lost it, the lines of both tasks are kept", async ({
  onTestFinished,
}) => {
  const reported = await logOfReplaced(["worker-1", "worker-2"], onTestFinished);
  expect(reported.second).toBe(reported.first);
  expectBoth(reported);
});

test.concurrent("replaced rank: on another worker, the lines of both tasks are kept", async ({
  onTestFinished,
}) => {
  const reported = await logOfReplaced(["worker-1", "worker-2", "worker-3"], onTestFinished);
  expect(reported.second).not.toBe(reported.first);
  expectBoth(reported);
});
