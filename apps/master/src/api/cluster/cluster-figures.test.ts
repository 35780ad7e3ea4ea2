// holds: ops-figures

import type { ClusterMetricsReply, ClusterResourcesReply } from "@heddle/contracts/api/cluster";
import { nodeOffer, scheduledModel } from "@heddle/control/jobs/testing/specs";
import { replicaEntry } from "@heddle/scheduler/plan-entry";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import type { NodeView } from "../../nodes/node-directory.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
  server.dispatch.queued = 7;
});
afterAll(() => server.master.close());

const gpu = (index: number, name: string) => ({
  index,
  name,
  uuid: `GPU-${index}`,
  memoryBytes: 80,
  memoryUsedBytes: 20,
  utilizationPercent: 50,
  temperatureCelsius: 40,
  powerWatts: 100,
  simulated: false,
  fault: "",
});

const H100S = {
  type: "NVIDIA H100",
  simulated: false,
  memory_bytes_each: 80,
  in_use: 0,
  available: 0,
  quarantined: 0,
};

/** Its engine uses 30 bytes, on GPU 1 of two. */
function gpuNode(id: string, generatedTokens: number): NodeView {
  const node = replicaOn(id, "tiny", "ready", 128);
  const [replica] = node.replicas;
  if (!replica?.info) throw new Error("the fixture has a replica");
  const load = { ...replica.load, residentBytes: 30, generatedTokens };
  const info = { ...replica.info, device: "gpu 1: NVIDIA H100" };
  const gpus = [gpu(0, "NVIDIA H100"), gpu(1, "NVIDIA H100")];
  return { ...node, gpus, replicas: [{ ...replica, load, info }] };
}

async function json(path: string): Promise<unknown> {
  return (await send(server, "GET", path)).json();
}

async function metric(name: string, label = ""): Promise<number> {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  const line = text.split("\n").find((each) => each.startsWith(`${name}{`) && each.includes(label));
  const bare = text.split("\n").find((each) => each.startsWith(`${name} `));
  return Number((line ?? bare)?.split(" ").at(-1));
}

describe("GET /cluster/metrics", () => {
  it("sums the nodes' reports, and equals /metrics", async () => {
    const suspect: NodeView = { ...replicaOn("w2", "tiny", "loading"), state: "suspect" };
    const shards: NodeView = {
      ...replicaOn("p1", "tiny", "ready"),
      kind: "parameter-server",
      replicas: [],
    };
    server.directory.views = [gpuNode("w1", 0), suspect, shards];
    const metrics = (await json("/api/v1/cluster/metrics")) as ClusterMetricsReply;
    expect(metrics).toMatchObject({
      workers: { total: 2, by_state: { ready: 1, suspect: 1 } },
      parameter_servers: { total: 1 },
      gpus: {
        total: 2,
        simulated: 0,
        used: 1,
        memory_bytes: 160,
        memory_used_bytes: 40,
        utilization_percent: 50,
      },
      cpu: { cores: 6, used_cores: 0.72 },
      memory: { total_bytes: 300, used_bytes: 150 },
      replicas: { total: 2, ready: 1 },
      requests: { running: 4, waiting: 2 },
      queues: { dispatch: 7, engines: 2 },
      raft: null,
    });
    expect(await metric("heddle_cluster_workers", 'state="suspect"')).toBe(1);
    expect(await metric("heddle_cluster_gpus")).toBe(metrics.gpus.total);
    expect(await metric("heddle_cluster_gpus_used")).toBe(metrics.gpus.used);
    expect(await metric("heddle_cluster_cpu_cores", 'kind="used"')).toBe(metrics.cpu.used_cores);
    expect(await metric("heddle_cluster_memory_bytes", 'kind="used"')).toBe(150);
    expect(await metric("heddle_cluster_replicas", 'kind="ready"')).toBe(metrics.replicas.ready);
    expect(await metric("heddle_cluster_requests", 'kind="running"')).toBe(4);
  });

  // holds: ops-machine-once, task-simulated-gpu
  it("counts a machine's resources once, and simulated ones per node", async () => {
    const pretended = { ...gpu(7, "Pretended"), simulated: true };
    const on = (node: NodeView, hostId: string, diskId: string): NodeView => ({
      ...node,
      hostId,
      diskId,
      diskBytes: 1_000,
      diskUsedBytes: 10,
      gpus: [...node.gpus, pretended],
    });
    const one = gpuNode("w1", 0);
    server.directory.views = [
      on(one, "h1", "d1"),
      on({ ...one, id: "w2", replicas: [] }, "h1", "d1"),
      on({ ...one, id: "w3", replicas: [], gpus: [] }, "h1", "d2"),
      on({ ...one, id: "w4", replicas: [], gpus: [gpu(0, "NVIDIA H100")] }, "h2", "d1"),
    ];
    const { totals, nodes } = (await json("/api/v1/cluster/resources")) as ClusterResourcesReply;
    expect(totals.cpu_cores.offered).toBe(2 * one.cpuCount);
    expect(totals.memory_bytes).toMatchObject({
      offered: 2 * one.memoryBytes,
      measured: 2 * one.memoryUsedBytes,
      in_use: 30,
    });
    expect(totals.local_ssd_bytes).toMatchObject({ offered: 3_000, measured: 30 });
    expect(totals.gpus).toEqual([
      { ...H100S, count: 3, in_use: 1 },
      { ...H100S, type: "Pretended", count: 4, simulated: true },
    ]);
    expect(nodes.map(({ cpu_cores }) => cpu_cores.offered)).toEqual(
      Array.from(nodes, () => one.cpuCount),
    );
    expect(await metric("heddle_cluster_cpu_cores", 'kind="total"')).toBe(2 * one.cpuCount);
    expect(await metric("heddle_cluster_gpus")).toBe(7);
    expect(await json("/api/v1/cluster/status")).toMatchObject({
      gpus: { total: 7, simulated: 4 },
    });
  });

  it("counts simulated GPUs beside the total, as the status does", async () => {
    const pretended = { ...gpu(2, "NVIDIA H100"), simulated: true };
    const view = gpuNode("w1", 0);
    server.directory.views = [{ ...view, gpus: [...view.gpus, pretended] }];
    const counts = { total: 3, simulated: 1 };
    const metrics = (await json("/api/v1/cluster/metrics")) as ClusterMetricsReply;
    expect(metrics.gpus).toMatchObject(counts);
    expect(await metric("heddle_cluster_gpus_simulated")).toBe(1);
    expect(await json("/api/v1/cluster/status")).toMatchObject({ gpus: counts });
  });

  it("keeps the token count over the restart of an engine", async () => {
    const total = async () =>
      ((await json("/api/v1/cluster/metrics")) as ClusterMetricsReply).tokens.generated_total;
    server.directory.views = [gpuNode("w1", 0)];
    const before = await total();
    server.directory.views = [gpuNode("w1", 100)];
    expect(await total()).toBe(before + 100);
    server.directory.views = [gpuNode("w1", 30)];
    expect(await total()).toBe(before + 130);
  });
});

describe("GET /cluster/resources", () => {
  it("shows capacity, use and measurement per node and in total", async () => {
    server.directory.views = [gpuNode("w1", 0), replicaOn("w2", "tiny", "failed")];
    const storage = { type: "setting.put" as const, atMs: 0, name: "shared_storage_gb" as const };
    await server.control.propose({ ...storage, value: 40 });
    const resources = (await json("/api/v1/cluster/resources")) as ClusterResourcesReply;
    expect(resources.totals).toEqual({
      nodes: 2,
      cpu_cores: { offered: 4, in_use: 0, available: 0, measured: 0.48 },
      memory_bytes: { offered: 200, in_use: 30, available: 0, measured: 100 },
      local_ssd_bytes: { offered: 2000, in_use: 0, available: 0, measured: 800 },
      tasks: { offered: 0, in_use: 0, available: 0 },
      gpus: [{ ...H100S, count: 2, in_use: 1 }],
      shared_storage_gb: { offered: 40, in_use: 0, available: 40 },
    });
    const [first, second] = resources.nodes;
    expect(first?.uses).toMatchObject([
      { kind: "replica", id: "tiny", memory_bytes: 30, gpus: [{ index: 1, share: 1 }] },
    ]);
    expect(second?.uses).toEqual([]);
  });

  it("counts what is available only of ready nodes and healthy devices", async () => {
    const offer = nodeOffer("w1", { gpuCount: 2, cpuMilli: 4_000, rack: "r1", maxTasks: 128 });
    await server.control.propose({ type: "node.join", atMs: 0, offer });
    const unhealthy = { nodeId: "w1", device: 0, why: "Xid 79" };
    await server.control.propose({ type: "node.quarantine", atMs: 0, ...unhealthy });
    const view = gpuNode("w1", 0);
    const pretended = { ...gpu(2, "NVIDIA H100"), simulated: true };
    server.directory.views = [{ ...view, replicas: [], gpus: [...view.gpus, pretended] }];
    const ready = (await json("/api/v1/cluster/resources")) as ClusterResourcesReply;
    expect(ready.totals.cpu_cores.available).toBe(4);
    expect(ready.totals.tasks).toEqual({ offered: 128, in_use: 0, available: 128 });
    expect(ready.totals.gpus).toEqual([
      { ...H100S, count: 2, available: 1, quarantined: 1 },
      { ...H100S, count: 1, available: 1, simulated: true },
    ]);
    await server.control.propose({ type: "node.drain", atMs: 0, nodeId: "w1", byMs: 0 });
    const drained = (await json("/api/v1/cluster/resources")) as ClusterResourcesReply;
    expect(drained.totals.cpu_cores.available).toBe(0);
    expect(drained.totals.tasks).toEqual({ offered: 128, in_use: 0, available: 0 });
    expect(drained.totals.gpus.map(({ available }) => available)).toEqual([0, 0]);
    expect(drained.nodes[0]?.state).toMatch(/^drain/);
  });

  it("counts a placed replica's device from its place on", async () => {
    const offer = nodeOffer("w3", { gpuCount: 2 });
    await server.control.propose({ type: "node.join", atMs: 0, offer });
    await server.control.propose(scheduledModel("placed", 1, 0));
    const limits = { jobTimeoutMs: 86_400_000, maxConcurrentJobs: 1_000 };
    await server.control.propose({
      type: "plan.commit",
      atMs: 1,
      basedOnIndex: 1,
      overcommitRatio: 1,
      limits,
      acknowledgeMs: 1_000,
      admitted: [],
      unsatisfiable: [],
      preemptions: [],
      expired: [],
      starts: [{ entry: replicaEntry("placed"), placements: [{ nodeId: "w3", devices: [1] }] }],
    });
    server.directory.views = [
      { ...replicaOn("w3", "placed", "failed"), gpus: [gpu(0, "H100"), gpu(1, "H100")] },
    ];
    const { totals, nodes } = (await json("/api/v1/cluster/resources")) as ClusterResourcesReply;
    expect(totals.gpus).toMatchObject([{ count: 2, in_use: 1, available: 1 }]);
    expect(nodes[0]?.uses).toMatchObject([{ id: "placed", gpus: [{ index: 1, share: 1 }] }]);
    const worker = (await json("/api/v1/workers/w3")) as { readonly jobs: unknown };
    expect(worker.jobs).toMatchObject({ gpus_held: 1, serving: [{ deployment: "placed" }] });
    const failure = { code: "model_failed", message: "it has the wrong sha256" };
    const place = { deployment: "placed", nodeId: "w3" };
    await server.control.propose({ type: "replica.fail", atMs: 2, ...place, ...failure });
    const after = (await json("/api/v1/cluster/resources")) as ClusterResourcesReply;
    expect(after.totals.gpus).toMatchObject([{ in_use: 0, available: 2 }]);
    server.directory.views = [];
    expect(await json("/api/v1/models/placed")).toMatchObject({
      status: "failed",
      waiting_for: [expect.stringContaining("wrong sha256 (model_failed)")],
    });
  });

  it("needs cluster:read, like the metrics; a backup needs cluster:admin", async () => {
    const { text } = await server.addKey({ scopes: ["models:read"] });
    const reader = await server.addKey({ scopes: ["cluster:read"] });
    const status = async (path: string, key: string) => {
      const headers = { authorization: `Bearer ${key}` };
      return (await fetch(`${server.url}/api/v1/cluster/${path}`, { headers })).status;
    };
    for (const path of ["metrics", "resources", "status"]) {
      expect(await status(path, text), path).toBe(403);
      expect(await status(path, reader.text), path).toBe(200);
    }
    expect(await status("backup", reader.text)).toBe(403);
    expect(await status("backup", server.adminKey)).toBe(412);
    expect(await status("backup?consistency=often", server.adminKey)).toBe(400);
  });
});
