import { randomUUID } from "node:crypto";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { simulatedGpus } from "@heddle/node-agent/simulated-gpus";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { readTestEvents } from "../../test/event-reader.ts";
import { JobCluster } from "../../test/job-cluster.ts";

let cluster: JobCluster;
const small = { cpu_cores: 0.1, memory_gb: 0.2 };
const workers = ["worker-1", "worker-2"];

beforeAll(async () => {
  cluster = new JobCluster(3, { leaseMs: 60_000, nodeLostMs: 30_000 });
  await cluster.masters.startAll();
  for (const name of workers) {
    await cluster.startWorker(name, { simulatedGpus: simulatedGpus("4xH100-80GB") });
  }
  for (const name of workers) await cluster.takesJobs(name);
});
afterEach((context) => cluster.clear(context));
afterAll(() => cluster.close());

/**
 * Runs until it is asked to checkpoint, waits for the gate if it has one, then names what it saved.
 */
function checkpointing(gate?: string): string {
  const wait = gate === undefined ? "" : `until [ -e ${gate} ]; do sleep 0.05; done; `;
  const save = `${wait}touch $HEDDLE_CHECKPOINT_DIR/c1; echo "{\\"step\\": 1, \\"checkpoint\\": \\"c1\\"}" >> $HEDDLE_PROGRESS_FILE`;
  return `trap '${save}' USR1; echo "begins, from [$HEDDLE_RESUME_FROM]"; while :; do sleep 0.1; done`;
}

async function holderOf(id: string): Promise<string> {
  return (await cluster.job(id)).task_list[0]?.node_name ?? "";
}

/** The task has written its first line, which follows its traps. */
async function hasBegun(id: string, attempt: number): Promise<void> {
  await eventually(
    async () => (await cluster.logs(id, `attempt=${attempt}`).catch(() => "")).startsWith("begins"),
    "it has begun",
  );
}

async function drain(name: string, seconds: number): Promise<void> {
  const { id } = await cluster.worker(name);
  await cluster.call("POST", `/workers/${id}/drain`, { deadline_seconds: seconds });
}

async function resume(name: string): Promise<void> {
  await cluster.call("POST", `/workers/${(await cluster.worker(name)).id}/resume`);
}

async function cancel(id: string): Promise<void> {
  await cluster.call("DELETE", `/jobs/${id}`);
  await cluster.reaches(id, "cancelled");
}

// holds: life-failed-once
test("event stream: FAILED once, with reason, exit code, rank, node and last lines", async () => {
  const id = await cluster.submit({
    name: "fails",
    tasks: 2,
    resources: small,
    command:
      'if [ $RANK = 0 ]; then sleep 600; fi; i=0; while [ $i -lt 80 ]; do i=$((i+1)); echo "line $i"; done; exit 7',
  });
  for (const name of cluster.masters.runningNames) {
    await eventually(
      async () =>
        cluster.job(id, name).then(
          () => true,
          () => false,
        ),
      `${name} knows of it`,
    );
  }
  const eventsAt = (name: string) => {
    const url = `${cluster.masters.url(name)}/api/v1/jobs/${id}/events`;
    return readTestEvents(url, cluster.masters.adminKey, undefined, () => false);
  };
  const streams = held(Promise.all(cluster.masters.runningNames.map(eventsAt)));
  await cluster.reaches(id, "failed");
  const failed = (await streams).map((events) =>
    events.filter(({ data }) => data.phase === "FAILED"),
  );
  const holders = new Set((await cluster.job(id)).task_list.map(({ node_name }) => node_name));
  const ids = new Map(
    await Promise.all(
      workers.map(async (name) => [name, (await cluster.worker(name)).id] as const),
    ),
  );
  for (const each of failed) {
    expect(each).toHaveLength(1);
    const { failure } = each[0]!.data as unknown as { failure: Record<string, unknown> };
    expect(failure).toMatchObject({ reason: "ExitCode", exit_code: 7, rank: 1, signal: null });
    expect([...holders].map((name) => ids.get(name))).toContain(failure["node"]);
    const wanted = Array.from({ length: 50 }, (_, at) => `line ${at + 31}`);
    expect(failure["last_lines"]).toEqual(wanted);
  }
});

// holds: life-drain
test("drain without a spare node: the job is pending, then resumes its checkpoint", async () => {
  const resources = { ...small, gpu_count: 4 };
  const ids = await Promise.all(
    workers.map((name) => cluster.submit({ name, command: checkpointing(), resources })),
  );
  for (const id of ids) await cluster.reaches(id, "running");
  for (const id of ids) await hasBegun(id, 1);
  const [moved = "", other = ""] = ids;
  const holder = await holderOf(moved);
  await drain(holder, 60);
  const waiting = await cluster.reaches(moved, "pending");
  expect(waiting).toMatchObject({ failures: 0, attempt: 1 });
  expect(waiting.explanation?.blockers.map(({ reason }) => reason)).toContain("NodesDraining");
  await eventually(async () => {
    return (await cluster.worker(holder)).jobs?.state === "drained";
  }, "the node is empty");
  await resume(holder);
  expect(await cluster.reaches(moved, "running")).toMatchObject({ attempt: 2, failures: 0 });
  await hasBegun(moved, 2);
  expect(await cluster.logs(moved, "attempt=2")).toBe("begins, from [c1]\n");
  expect(await cluster.job(other)).toMatchObject({ state: "running", attempt: 1 });
  const saved = join(cluster.masters.folder, "checkpoints", moved);
  expect(readdirSync(saved)).toContain("c1");
  for (const id of ids) await cancel(id);
  await eventually(async () => !existsSync(saved), "its checkpoints are gone with it");
});

// holds: life-drain-deadline
test("drain cancelled midway: the node is ready, and its jobs run on", async () => {
  const gate = join(cluster.masters.folder, randomUUID());
  const grace = { checkpoint_config: { grace_seconds: 600 } };
  const resources = { ...small, gpu_count: 4 };
  const ids = await Promise.all(
    workers.map((name) =>
      cluster.submit({ name, command: checkpointing(gate), resources, ...grace }),
    ),
  );
  for (const id of ids) await cluster.reaches(id, "running");
  for (const id of ids) await hasBegun(id, 1);
  const [leaving = "", other = ""] = ids;
  const holder = await holderOf(leaving);
  await drain(holder, 600);
  await drain(holder, 600);
  expect((await cluster.worker(holder)).jobs?.state).toBe("draining");
  await cluster.reaches(leaving, "checkpointing");
  await resume(holder);
  expect((await cluster.worker(holder)).jobs?.state).toBe("ready");
  writeFileSync(gate, "");
  // The preempted job has left and returns to the only free place with its checkpoint.
  await eventually(async () => {
    const job = await cluster.job(leaving);
    return job.state === "running" && job.attempt === 2;
  }, "it runs again");
  await hasBegun(leaving, 2);
  expect(await cluster.logs(leaving, "attempt=2")).toBe("begins, from [c1]\n");
  expect(await holderOf(leaving)).toBe(holder);
  expect((await cluster.job(leaving)).failures).toBe(0);
  expect(await cluster.job(other)).toMatchObject({ state: "running", attempt: 1 });
  expect((await cluster.worker(holder)).jobs?.state).toBe("ready");
  for (const id of ids) await cancel(id);
});

// holds: life-drain-deadline
test("drain deadline: tasks that do not leave are killed", async () => {
  const id = await cluster.submit({
    name: "stubborn",
    resources: small,
    command: "trap '' TERM USR1; echo begins; while :; do sleep 0.1; done",
    checkpoint_config: { grace_seconds: 3600 },
  });
  await cluster.reaches(id, "running");
  await hasBegun(id, 1);
  const holder = await holderOf(id);
  await drain(holder, 2);
  await eventually(async () => {
    return (await cluster.worker(holder)).jobs?.state === "drained";
  }, "the node is empty, long before the job's own grace");
  await eventually(async () => {
    const job = await cluster.job(id);
    return job.state === "running" && job.attempt === 2;
  }, "it runs on the other node");
  expect(await holderOf(id)).not.toBe(holder);
  await resume(holder);
  await cancel(id);
});

// holds: life-losses, life-unhealthy-device
test("unhealthy simulated GPU: only it is quarantined, and resume returns it", async () => {
  const ids: string[] = [];
  for (const n of [1, 2, 3, 4, 5]) {
    const resources = { ...small, gpu_count: 1, node_affinity: {} };
    ids.push(await cluster.submit({ name: `gpu-${n}`, command: "sleep 600", resources }));
  }
  for (const id of ids) await cluster.reaches(id, "running");
  const [hit = ""] = ids;
  const before = (await cluster.job(hit)).task_list[0]!;
  const file = join(cluster.dataDirectory(before.node_name), "gpu-faults");
  writeFileSync(file, `${before.devices[0]} Xid 79\n`);
  await eventually(async () => {
    const job = await cluster.job(hit);
    return job.state === "running" && job.attempt === 2;
  }, "it runs elsewhere");
  const after = await cluster.job(hit);
  expect(after).toMatchObject({ failures: 0, losses: 1 });
  const place = ({ node_name: node, devices }: typeof before) => `${node}/${devices}`;
  expect(place(after.task_list[0]!)).not.toBe(place(before));
  for (const id of ids.slice(1)) expect(await cluster.job(id)).toMatchObject({ attempt: 1 });
  const unhealthy = await cluster.worker(before.node_name);
  expect(unhealthy.jobs?.quarantined).toMatchObject([
    { device: before.devices[0], why: expect.stringContaining("Xid 79") },
  ]);
  const other = workers.find((name) => name !== before.node_name) ?? "";
  expect((await cluster.worker(other)).jobs?.quarantined).toEqual([]);
  const all = { command: "true", resources: { ...small, gpu_count: 8 } };
  const dry = await cluster.call<{ verdict: string }>("POST", "/jobs?dry_run=true", {
    ...all,
    name: "all",
    tasks: 8,
  });
  expect(dry.verdict).toBe("unsatisfiable");
  await eventually(async () => {
    return (await cluster.worker(before.node_name)).gpus.some(({ fault }) => fault !== null);
  }, "the master that is asked has received the fault");
  // A device that is still unhealthy stays quarantined; a healthy one returns.
  await resume(before.node_name);
  expect((await cluster.worker(before.node_name)).jobs?.quarantined).toHaveLength(1);
  writeFileSync(file, "");
  await eventually(async () => {
    await resume(before.node_name);
    return (await cluster.worker(before.node_name)).jobs?.quarantined.length === 0;
  }, "it is taken back");
  for (const id of ids) await cancel(id);
});

// holds: sched-preemption
test("preemption: the lower-priority job checkpoints, leaves, and resumes later", async () => {
  const resources = { ...small, gpu_count: 8 };
  const low = await cluster.submit({
    name: "low",
    tasks: 2,
    command: checkpointing(),
    resources,
  });
  await cluster.reaches(low, "running");
  await hasBegun(low, 1);
  await eventually(async () => {
    const lines = (await cluster.logs(low, "attempt=1")).trim().split("\n");
    return lines.length === 2;
  }, "both ranks have begun");
  const go = join(cluster.masters.folder, randomUUID());
  const high = await cluster.submit({
    name: "high",
    tasks: 2,
    command: `until [ -e ${go} ]; do sleep 0.1; done`,
    resources: { ...resources, priority: 10 },
  });
  await cluster.reaches(high, "running");
  expect(await cluster.job(low)).toMatchObject({ state: "pending", failures: 0 });
  const phases = async (id: string) => {
    const { data } = await cluster.call<{ data: { phase: string }[] }>("GET", `/jobs/${id}/events`);
    return data.map(({ phase }) => phase);
  };
  expect(await phases(low)).toEqual([
    "ACCEPTED",
    "PENDING",
    "SCHEDULED",
    "STARTING",
    "RUNNING",
    "CHECKPOINTING",
    "PREEMPTED",
    "PENDING",
  ]);
  writeFileSync(go, "");
  await cluster.reaches(high, "succeeded");
  expect(await cluster.reaches(low, "running")).toMatchObject({ attempt: 2, failures: 0 });
  await hasBegun(low, 2);
  expect((await cluster.logs(low, "attempt=2")).split("\n")[0]).toBe("begins, from [c1]");
  await cancel(low);
});

// holds: life-limits
test("limits: time, missing steps, memory, disk, retries; each with its reason", async () => {
  const cases: readonly (readonly [string, string, Record<string, unknown>])[] = [
    ["DeadlineExceeded", "sleep 600", { max_runtime_hours: 0.0005 }],
    ["Hang", "sleep 600", { monitoring_config: { hang_timeout_seconds: 2 } }],
    [
      "OutOfMemory",
      `exec ${process.execPath} -e 'const held=[];setInterval(()=>held.push(Buffer.alloc(3e7,1)),50)'`,
      {},
    ],
    [
      "ExitCode",
      "dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; sleep 600",
      { resources: { ...small, local_ssd_gb: 0.005 } },
    ],
    ["RetryLimitExceeded", "exit 9", { retry_limit: 1 }],
    ["LaunchFailed", "true", { working_directory: "/no/such/folder" }],
  ];
  const ids = await Promise.all(
    cases.map(([name, command, rest]) =>
      cluster.submit({ name, command, resources: small, ...rest }),
    ),
  );
  for (const [at, [reason]] of cases.entries()) {
    const job = await cluster.reaches(ids[at]!, "failed");
    expect(job.failure?.reason).toBe(reason);
    expect(job.attempt).toBe(reason === "RetryLimitExceeded" ? 2 : 1);
  }
});
