import type { ClusterMetricsReply } from "@heddle/contracts/api/cluster";
import { taskKey } from "@heddle/control/jobs/records/records";
import { afterEach, beforeEach, expect, test } from "vitest";
import { send } from "../../test/http.ts";
import { JobApi } from "../../test/job-api.ts";

// Jobs and the cluster around them: workers, queues, projects and metrics.

let api: JobApi;

beforeEach(async () => {
  api = await JobApi.start();
  await api.join("a");
});

afterEach(() => api.close());

// holds: life-drain
test("drain: the job moves to another worker; a resumed worker takes work again", async () => {
  const id = await api.submit();
  await api.run(id);
  await api.join("b");
  const drained = await api.call("POST", "/workers/a/drain", { deadline_seconds: 60 });
  expect(drained).toMatchObject({ status: 202, body: { status: "draining" } });
  await api.report(id, "stopping");
  await api.report(id, "exited", { endedAtMs: 1 });
  await api.reached(id, "scheduled");
  const { body } = await api.call("GET", `/jobs/${id}`);
  expect(body?.task_list).toMatchObject([{ node: "b", attempt: 2, simulated: true }]);
  expect((await api.call("GET", "/workers/a")).body).toMatchObject({ status: "drained" });
  expect((await api.call("POST", "/workers/a/drain")).status).toBe(202);
  expect((await api.call("POST", "/workers/a/resume")).body).toMatchObject({ status: "ready" });
  expect((await api.call("POST", "/workers/x/drain")).status).toBe(404);
});

test("silent worker: suspect, with the time of its silence, until it is lost", async () => {
  const { silences } = api.master.directory;
  const seen = async () => (await api.call("GET", "/workers/a")).body;
  expect(await seen()).toMatchObject({ status: "ready", silent_seconds: 0 });
  silences.set("a", 45_900);
  expect(await seen()).toMatchObject({ status: "suspect", silent_seconds: 45 });
  const { body } = await api.call("GET", "/workers");
  expect(body?.data).toMatchObject([{ status: "suspect", silent_seconds: 45 }]);
  await api.propose({ type: "node.lost", nodeIds: ["a"], fencedAtMs: Date.now() });
  expect(await seen()).toMatchObject({ status: "lost", silent_seconds: 45 });
});

// holds: life-unhealthy-device
test("unhealthy device: quarantined as its task exits; the next attempt has another", async () => {
  const id = await api.submit();
  await api.run(id);
  const { state } = api.master.control;
  const task = state.tasks.get(taskKey(id, 1, 0))!;
  const [device = -1] = task.devices;
  const exit = { reason: "GpuFault", message: "GPU 0 of a: Xid 79", endedAtMs: Date.now() };
  const report = { jobId: id, attempt: 1, rank: 0, phase: "exited", exit, sickDevices: [device] };
  await api.propose({ type: "tasks.report", nodeId: "a", reports: [report] });
  expect(state.nodes.get("a")?.quarantined).toMatchObject([{ device, why: exit.message }]);
  await api.reached(id, "scheduled");
  expect(state.tasks.get(taskKey(id, 2, 0))?.devices).not.toContain(device);
  expect(state.jobs.get(id)).toMatchObject({ losses: 1, failures: 0 });
});

test("parameter server: cannot be drained as a worker, and the error says so", async () => {
  const offer = { id: "ps-1", name: "ps-1", address: "127.0.0.1:1", incarnation: "a" };
  await api.propose({ type: "server.join", server: offer });
  expect([...api.master.control.state.servers.keys()]).toEqual(["ps-1"]);
  for (const what of ["drain", "resume"]) {
    const { status, body } = await api.call("POST", `/workers/ps-1/${what}`);
    expect(status).toBe(422);
    expect(body?.detail).toMatch(/^ps-1 is a parameter server, which runs no tasks/);
  }
});

// holds: sched-quotas
test("queues and projects: are set, shown and enforced", async () => {
  const bad = await api.call("PUT", "/queues/BAD", { strategy: "spread" });
  expect(bad.body?.detail).toMatch(/^A queue's name is 1 to 63 of a-z \(lower case\)/);
  const queue = await api.call("PUT", "/queues/batch", { strategy: "binpack", max_length: 1 });
  expect(queue.body).toMatchObject({
    name: "batch",
    strategy: "binpack",
    max_length: 1,
    length: 0,
  });
  await api.submit({ queue: "batch", project: "p", resources: { gpu_count: 2 } });
  const full = await api.call("POST", "/jobs", { name: "n", command: "x", queue: "batch" });
  expect(full).toMatchObject({ status: 429, body: { code: "insufficient_quota" } });
  await api.call("PUT", "/projects/p", { weight: 2, quota: { gpu_count: 2, gpu_hours: 100 } });
  const id = await api.submit({ name: "second", project: "p", max_runtime_hours: 1 });
  await api.reached(id, "pending");
  const { body } = await api.call("GET", `/jobs/${id}`);
  expect(body?.explanation?.blockers).toMatchObject([
    { reason: "QuotaExceeded", resource: "gpu_count", requested: 1, free: 0, limit: 2 },
  ]);
  const project = await api.call("GET", "/projects/p");
  expect(project.body).toMatchObject({ weight: 2, usage: { gpus: 2 } });
  expect((await api.call("PUT", "/projects/p", { weight: 0 })).status).toBe(400);
});

// holds: jobs-metrics
test("metrics: states, reasons, waits, idle and broken GPUs, GPU-hours of jobs", async () => {
  await api.run(await api.submit({ project: "p", resources: { gpu_count: 0.5 } }));
  const id = await api.submit({ name: "big", tasks: 1, resources: { gpu_count: 4 } });
  await api.reached(id, "pending");
  await api.propose({ type: "node.quarantine", nodeId: "a", device: 3, why: "Xid 79" });
  const { body } = await api.call("GET", "/cluster/metrics");
  const { jobs } = body as unknown as ClusterMetricsReply;
  expect(jobs).toMatchObject({
    by_state: { running: 1, pending: 1 },
    pending_by_reason: { InsufficientGpu: 1 },
    gpus: { total: 3, held: 0.5, quarantined: 1, idle_percent: 83.33, fragmentation_percent: 20 },
    scheduler: { starts: 1, round_ms: { p99: expect.any(Number) } },
    admission_ms: { p50: expect.any(Number), p99: expect.any(Number) },
    start_ms: { p99: expect.any(Number) },
    gpu_hours: { p: expect.any(Number) },
  });
  const metrics = await (await send(api.master, "GET", "/metrics")).text();
  for (const line of [
    'heddle_cluster_jobs{state="running"} 1',
    'heddle_cluster_jobs_pending{reason="InsufficientGpu"} 1',
    `heddle_cluster_job_admission_seconds{quantile="0.99"} ${jobs.admission_ms.p99! / 1_000}`,
    `heddle_cluster_job_start_seconds{quantile="0.5"} ${jobs.start_ms.p50! / 1_000}`,
    'heddle_cluster_job_gpus{kind="quarantined"} 1',
    "heddle_cluster_gpu_idle_percent 83.33",
    "heddle_cluster_gpu_fragmentation_percent 20",
  ]) {
    expect(metrics).toContain(line);
  }
  expect(metrics).toMatch(/^heddle_cluster_project_gpu_hours\{project="p"\} \d/m);
});
