import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { simulatedGpus } from "@heddle/rpc/node/simulated-gpus";
import { expect, type TestContext, test, vi } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";
import { eventuallyAsync } from "../../test/master-group.ts";

/** Processes start and leaders change slowly on a machine that does other things too. */
vi.setConfig({ testTimeout: 240_000 });

const small = { cpu_cores: 0.2, memory_gb: 0.2 };

/** Masters of its own for a test; most of its time is spent waiting, so that others run meanwhile. */
function newCluster(onTestFinished: OnEnd, ...args: ConstructorParameters<typeof JobCluster>) {
  const cluster = new JobCluster(...args);
  onTestFinished(() => cluster.close());
  return cluster;
}
type OnEnd = TestContext["onTestFinished"];

/** A file that a job waits for, so that it does not end before the test has looked; `open` makes it. */
function gateOf(cluster: JobCluster) {
  const path = join(cluster.masters.folder, "gate");
  return { wait: `until [ -e ${path} ]; do sleep 0.05; done`, open: () => writeFileSync(path, "") };
}

test.concurrent("a command of two tasks runs through a master and workers; its logs and end are told", async ({
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
  await eventuallyAsync("all lines are there", async () => {
    const lines = (await cluster.logs(id)).trim().split("\n");
    return lines.length === 4 && (await cluster.logs(id, "rank=1&stream=stderr")) === "warn\n";
  });
  expect(await cluster.logs(id, "rank=1&stream=stdout&follow=true")).toMatch(
    /^rank 1 of 2, 127\.0\.0\.1:\d+,127\.0\.0\.1:\d+\n$/,
  );
});

test.concurrent("follow over a leader's and a worker's death loses and repeats no line, and all is readable after", async ({
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
  await eventuallyAsync("lines come", async () => followed.lines.length > 20);
  await cluster.masters.end(leader, "SIGKILL");
  await eventuallyAsync(
    "a new leader has it",
    async () => (await cluster.masters.leader()) !== leader,
  );
  gate.open();
  await followed.ended;
  const wanted = Array.from({ length: 250 }, (_, i) => `line ${i + 1}`);
  expect(followed.lines).toEqual(wanted);
  // Each master hears of the end at its own time.
  await eventuallyAsync("the other one knows the end as well", async () => {
    return (await cluster.job(id, other)).state === "succeeded";
  });
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

test.concurrent("a worker that is killed and comes back within its lease loses no task", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 60_000, nodeLostMs: 20_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const gate = gateOf(cluster);
  const upTo = (n: number) =>
    `while [ $i -lt ${n} ]; do i=$((i+1)); echo line $i; sleep 0.05; done`;
  const id = await cluster.submit({
    ...{ name: "kept", resources: small },
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

test.concurrent("a partition of all workers that is shorter than the lease kills no job", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 30_000, nodeLostMs: 2_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const gate = gateOf(cluster);
  const command = `${gate.wait}; echo done`;
  const id = await cluster.submit({ name: "kept", command, resources: small });
  await cluster.reaches(id, "running");
  // A stopped master is one that no worker reaches; its own watch must not take that for theirs.
  cluster.masters.signal("master-1", "SIGSTOP");
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  cluster.masters.signal("master-1", "SIGCONT");
  gate.open();
  expect(await cluster.reaches(id, "succeeded")).toMatchObject({ attempt: 1, failure: null });
});

test.concurrent("a rank that ends because another's machine is gone uses up no retry; one that ends of itself does", async ({
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
  await eventuallyAsync("it is known what happened", async () => {
    return (await cluster.job(id)).losses > losses;
  });
  const job = await cluster.job(id);
  expect(job).toMatchObject({ failures: 0, losses: losses + 1, failure: { reason: "NodeLost" } });
  expect(["retrying", "pending"]).toContain(job.state);
});

test.concurrent("progress is live in the status and the stream of every master, also of one that is left alone", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 3, { leaseMs: 60_000, nodeLostMs: 20_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  const id = await cluster.submit({
    ...{ name: "told", resources: small, monitoring_config: { interval_seconds: 0.2 } },
    command:
      'i=0; while [ $i -lt 6000 ]; do i=$((i+1)); echo "{\\"step\\":$i,\\"total_steps\\":6000,\\"loss\\":0.5}" >> $HEDDLE_PROGRESS_FILE; sleep 0.1; done',
  });
  await cluster.reaches(id, "running");
  const stepAt = async (master: string) => (await cluster.job(id, master)).progress?.step ?? 0;
  // Ten seconds lie between two entries of progress in the log: this many steps come without it.
  for (const master of cluster.masters.names) {
    const seen = new Set<number>();
    await eventuallyAsync(`${master} tells of five steps`, async () => {
      const step = await stepAt(master);
      if (step > 0) seen.add(step);
      return seen.size >= 5;
    });
  }
  const leader = await cluster.masters.leader();
  const [left = "", other = ""] = cluster.masters.names.filter((name) => name !== leader);
  const told: number[] = [];
  const watching = new AbortController();
  const watched = cluster.progress(id, left, watching.signal, (step) => told.push(step));
  await cluster.masters.end(leader, "SIGKILL");
  await cluster.masters.end(other, "SIGKILL");
  const before = await stepAt(left);
  // Nothing can be put into the log any more.
  await eventuallyAsync("it goes on", async () => (await stepAt(left)) > before + 5);
  await eventuallyAsync("the stream as well", async () => (told.at(-1) ?? 0) > before + 5);
  watching.abort();
  await watched;
  expect(told).toEqual([...new Set(told)].sort((a, b) => a - b));
  expect(await cluster.job(id, left)).toMatchObject({
    progress: { total_steps: 6000, loss: 0.5, expected_end: expect.any(String) },
  });
});

// Alone, since its lease is short: what else runs must not cost another worker its lease too.
test("a worker that is stopped past its lease is replaced; it wakes, kills its task and adds nothing", async ({
  onTestFinished,
}) => {
  const cluster = newCluster(onTestFinished, 1, { leaseMs: 4_000, nodeLostMs: 3_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  await cluster.startWorker("worker-2", { labels: { spare: "yes" } });
  await cluster.startWorker("worker-3", { labels: { spare: "yes" } });
  const gate = gateOf(cluster);
  const id = await cluster.submit({
    ...{ name: "moved", resources: { ...small, node_anti_affinity: { never: "x" } } },
    command: `i=0; while [ $i -lt 120 ]; do i=$((i+1)); echo "$HEDDLE_ATTEMPT $HEDDLE_NODE $i"; sleep 0.05; done; ${gate.wait}`,
  });
  await cluster.reaches(id, "running");
  await cluster.someLog(id);
  // The first attempt, unless the machine stood still for longer than the lease.
  const { attempt: first, task_list: tasks } = await cluster.reaches(id, "running");
  const holder = tasks[0]?.node_name ?? "";
  cluster.signal(holder, "SIGSTOP");
  await eventuallyAsync("the next attempt runs", async () => {
    const job = await cluster.job(id);
    return job.attempt > first && job.state === "running";
  });
  const before = await cluster.logs(id, `attempt=${first}`);
  cluster.signal(holder, "SIGCONT");
  await eventuallyAsync("its task is dead", async () =>
    (cluster.output.get(holder) ?? "").includes("a task is killed"),
  );
  gate.open();
  const { attempt: last } = await cluster.reaches(id, "succeeded");
  const after = (await cluster.logs(id, `attempt=${first}`)).trim().split("\n");
  // A poll or two may have been on their way when it was stopped; what came later is not there.
  expect(after.length).toBeLessThan(before.trim().split("\n").length + 10);
  const lines = await cluster.logs(id, `attempt=${last}&stream=stdout&follow=true`);
  expect(lines.trim().split("\n")).toHaveLength(120);
});
