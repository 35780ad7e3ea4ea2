import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { simulatedGpus } from "@heddle/node-agent/simulated-gpus";
import { expect, type TestContext, test } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";

const small = { cpu_cores: 0.2, memory_gb: 0.2 };

/** A cluster of its own for a test; the tests mostly wait, so they run concurrently. */
function newCluster(onTestFinished: OnEnd, ...args: ConstructorParameters<typeof JobCluster>) {
  const cluster = new JobCluster(...args);
  onTestFinished(() => cluster.close());
  return cluster;
}
type OnEnd = TestContext["onTestFinished"];

/** A file for which a job waits, so that it does not end before the check; `open` creates it. */
function gateOf(cluster: JobCluster) {
  const path = join(cluster.masters.folder, "gate");
  return { wait: `until [ -e ${path} ]; do sleep 0.05; done`, open: () => writeFileSync(path, "") };
}

// holds: task-process
test.concurrent("job of two tasks: runs through a master and workers, with logs and exit", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 30_000, nodeLostMs: 10_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const id = await cluster.submit({
    name: "two",
    command: 'echo "rank $RANK of $WORLD_SIZE, $HEDDLE_PEERS"; echo warn >&2',
    tasks: 2,
    resources: small,
  });
  const job = await cluster.reaches(id, "succeeded");
  expect(job).toMatchObject({ attempt: 1, failure: null });
  await eventually(async () => {
    const lines = (await cluster.logs(id)).trim().split("\n");
    return lines.length === 4 && (await cluster.logs(id, "rank=1&stream=stderr")) === "warn\n";
  }, "all lines are there");
  expect(await cluster.logs(id, "rank=1&stream=stdout&follow=true")).toMatch(
    /^rank 1 of 2, 127\.0\.0\.1:\d+,127\.0\.0\.1:\d+\n$/,
  );
});

// holds: logs-follow
test.concurrent("follow: survives the death of leader and worker without lost or repeated lines", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 3, { leaseMs: 30_000, nodeLostMs: 4_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const leader = await cluster.masters.leader();
  const [reader = "", other = ""] = cluster.masters.names.filter((name) => name !== leader);
  const gate = gateOf(cluster);
  const upTo = (n: number) =>
    `while [ $i -lt ${n} ]; do i=$((i+1)); echo line $i; sleep 0.03; done`;
  const line = ["i=0", upTo(125), gate.wait, upTo(250)].join("; ");
  const id = await cluster.submit({ name: "lines", command: line, resources: small }, reader);
  await cluster.reaches(id, "running");
  const followed = cluster.follow(id, reader);
  await eventually(async () => followed.lines.length > 20, "lines come");
  await cluster.masters.end(leader, "SIGKILL");
  await eventually(async () => (await cluster.masters.leader()) !== leader, "a new leader has it");
  gate.open();
  await followed.ended;
  const wanted = Array.from({ length: 250 }, (_, i) => `line ${i + 1}`);
  expect(followed.lines).toEqual(wanted);
  // Each master learns of the end separately.
  await eventually(async () => {
    return (await cluster.job(id, other)).state === "succeeded";
  }, "the other one knows the end as well");
  expect(await cluster.job(id, other)).toMatchObject({ attempt: 1 });
  await cluster.end("worker-1", "SIGKILL");
  expect(await cluster.logs(id, "stream=stdout", other)).toBe(`${wanted.join("\n")}\n`);
  // Resumed from any cursor on another master, the rest follows to the byte.
  const cut = followed.cursors[Math.floor(followed.cursors.length / 2)] ?? { after: 0, cursor: "" };
  const rest = await cluster.logs(id, `cursor=${cut.cursor}`, other);
  expect(rest).toBe(
    wanted
      .slice(cut.after)
      .map((each) => `${each}\n`)
      .join(""),
  );
});

// holds: task-adopt
test.concurrent("worker restart within its lease: loses no task", async ({ onTestFinished }) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 60_000, nodeLostMs: 20_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const gate = gateOf(cluster);
  const upTo = (n: number) =>
    `while [ $i -lt ${n} ]; do i=$((i+1)); echo line $i; sleep 0.05; done`;
  const id = await cluster.submit({
    name: "kept",
    resources: small,
    command: ["i=0", upTo(60), gate.wait, upTo(80)].join("; "),
  });
  await cluster.reaches(id, "running");
  await cluster.end("worker-1", "SIGKILL");
  await cluster.startWorker("worker-1");
  gate.open();
  expect(await cluster.reaches(id, "succeeded")).toMatchObject({ attempt: 1 });
  const wanted = Array.from({ length: 80 }, (_, i) => `line ${i + 1}\n`).join("");
  expect(await cluster.logs(id, "stream=stdout&follow=true")).toBe(wanted);
});

// holds: life-mass-silence
test.concurrent("partition shorter than the lease: no job is killed", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 30_000, nodeLostMs: 2_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const gate = gateOf(cluster);
  const command = `${gate.wait}; echo done`;
  const id = await cluster.submit({ name: "kept", command, resources: small });
  await cluster.reaches(id, "running");
  // A stopped master simulates one that no worker reaches; it must not count them as silent.
  cluster.masters.signal("master-1", "SIGSTOP");
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  cluster.masters.signal("master-1", "SIGCONT");
  gate.open();
  expect(await cluster.reaches(id, "succeeded")).toMatchObject({ attempt: 1, failure: null });
});

// holds: life-root-cause
test.concurrent("lost machine: the other rank's failure uses no retry; its own failure does", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 30_000, nodeLostMs: 8_000 });
  await cluster.masters.startAll();
  for (const name of ["worker-1", "worker-2"]) {
    await cluster.startWorker(name, { simulatedGpus: simulatedGpus("1xH100-80GB") });
    await cluster.takesJobs(name);
  }
  const gang = { tasks: 2, resources: { ...small, gpu_count: 2 } };
  const rankOne = (what: string) => `if [ $RANK = 0 ]; then sleep 600; fi; ${what}`;
  const own = await cluster.submit({ ...gang, name: "own", command: rankOne("exit 1") });
  const failed = await cluster.reaches(own, "failed");
  expect(failed).toMatchObject({ failures: 1, failure: { reason: "ExitCode" } });
  const gate = gateOf(cluster);
  const command = rankOne(`${gate.wait}; exit 1`);
  const id = await cluster.submit({ ...gang, name: "torn", command });
  const { task_list: tasks, losses } = await cluster.reaches(id, "running");
  cluster.signal(tasks[0]?.node_name ?? "", "SIGSTOP");
  gate.open();
  await eventually(async () => {
    return (await cluster.job(id)).losses > losses;
  }, "it is known what happened");
  const job = await cluster.job(id);
  expect(job).toMatchObject({ failures: 0, losses: losses + 1, failure: { reason: "NodeLost" } });
  expect(["retrying", "pending"]).toContain(job.state);
});

// holds: life-progress
test.concurrent("progress: live on every master, also without a quorum", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 3, { leaseMs: 60_000, nodeLostMs: 20_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const id = await cluster.submit({
    name: "told",
    resources: small,
    monitoring_config: { interval_seconds: 0.2 },
    command:
      'i=0; while [ $i -lt 6000 ]; do i=$((i+1)); echo "{\\"step\\":$i,\\"total_steps\\":6000,\\"loss\\":0.5}" >> $HEDDLE_PROGRESS_FILE; sleep 0.1; done',
  });
  await cluster.reaches(id, "running");
  const stepAt = async (master: string) => (await cluster.job(id, master)).progress?.step ?? 0;
  // Progress is logged every ten seconds: this many steps arrive without it.
  for (const master of cluster.masters.names) {
    const seen = new Set<number>();
    await eventually(async () => {
      const step = await stepAt(master);
      if (step > 0) seen.add(step);
      return seen.size >= 5;
    }, `${master} reports five steps`);
  }
  const leader = await cluster.masters.leader();
  const [left = "", other = ""] = cluster.masters.names.filter((name) => name !== leader);
  const reported: number[] = [];
  const watching = new AbortController();
  const watched = cluster.progress(id, left, watching.signal, (step) => reported.push(step));
  await cluster.masters.end(leader, "SIGKILL");
  await cluster.masters.end(other, "SIGKILL");
  const before = await stepAt(left);
  // Nothing can be committed any more.
  await eventually(async () => (await stepAt(left)) > before + 5, "it continues");
  await eventually(async () => (reported.at(-1) ?? 0) > before + 5, "the stream as well");
  watching.abort();
  await watched;
  expect(reported).toEqual([...new Set(reported)].sort((a, b) => a - b));
  expect(await cluster.job(id, left)).toMatchObject({
    progress: { total_steps: 6000, loss: 0.5, expected_end: expect.any(String) },
  });
});

// Alone, because of its short lease: other load must not cost another worker its lease.
// holds: life-sigstop
test("worker stopped past its lease: is replaced, kills its task, adds nothing", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 4_000, nodeLostMs: 3_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  await cluster.startWorker("worker-2", { labels: { spare: "yes" } });
  await cluster.startWorker("worker-3", { labels: { spare: "yes" } });
  const gate = gateOf(cluster);
  const id = await cluster.submit({
    name: "moved",
    resources: { ...small, node_anti_affinity: { never: "x" } },
    command: `i=0; while [ $i -lt 120 ]; do i=$((i+1)); echo "$HEDDLE_ATTEMPT $HEDDLE_NODE $i"; sleep 0.05; done; ${gate.wait}`,
  });
  await cluster.reaches(id, "running");
  await cluster.someLog(id);
  // The first attempt, unless the machine stalled for longer than the lease.
  const { attempt: first, task_list: tasks } = await cluster.reaches(id, "running");
  const holder = tasks[0]?.node_name ?? "";
  cluster.signal(holder, "SIGSTOP");
  await eventually(async () => {
    const job = await cluster.job(id);
    return job.attempt > first && job.state === "running";
  }, "the next attempt runs");
  const before = await cluster.logs(id, `attempt=${first}`);
  cluster.signal(holder, "SIGCONT");
  await eventually(
    async () => (cluster.output.get(holder) ?? "").includes("a task is killed"),
    "its task is dead",
  );
  gate.open();
  const { attempt: last } = await cluster.reaches(id, "succeeded");
  const after = (await cluster.logs(id, `attempt=${first}`)).trim().split("\n");
  // One or two polls may have been in flight at the stop; nothing later is there.
  expect(after.length).toBeLessThan(before.trim().split("\n").length + 10);
  const lines = await cluster.logs(id, `attempt=${last}&stream=stdout&follow=true`);
  expect(lines.trim().split("\n")).toHaveLength(120);
});
