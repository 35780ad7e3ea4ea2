// holds: kube-pending-pods

import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { KubeConfig, type V1Pod } from "@kubernetes/client-node";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { type PendingPodSettings, readPendingPodSettings } from "./pending-pod.ts";
import { PendingPods } from "./pending-pods.ts";

// An API server that keeps Pods and nothing else.

const PODS = "/api/v1/namespaces/ns/pods";
const NOW = Date.parse("2026-01-01T01:00:00Z");
let pods: Map<string, V1Pod>;
let selectors: string[];
/** Statuses of the next creations, instead. */
let refusals: number[];

const server = createServer(async (request, reply) => {
  const url = new URL(request.url ?? "", "http://api");
  const name = url.pathname.slice(PODS.length + 1);
  const send = (status: number, body: object) => {
    reply.writeHead(status, { "content-type": "application/json" });
    reply.end(JSON.stringify(body));
  };
  if (request.method === "POST") {
    const pod = (await json(request)) as V1Pod;
    const status = refusals.shift() ?? 201;
    if (status === 201) pods.set(pod.metadata?.name ?? "", pod);
    return send(status, status === 201 ? pod : { kind: "Status", code: status });
  }
  if (request.method === "DELETE") return send(pods.delete(name) ? 200 : 404, {});
  selectors.push(url.searchParams.get("labelSelector") ?? "");
  send(200, { items: [...pods.values()] });
});

interface Waiting {
  readonly id: string;
  readonly tasks: number;
  readonly gpu_count: number;
  readonly since: string;
  readonly reasons: readonly string[];
  readonly state?: string;
}
let waiting: Waiting[];
const gang = (id: string, more: Partial<Waiting> = {}): Waiting => ({
  id: `job_${id}`,
  tasks: 2,
  gpu_count: 8,
  since: "2026-01-01T00:00:00Z",
  reasons: ["InsufficientGpu"],
  ...more,
});
const jobs = {
  async *list({ state }: { readonly state: string }) {
    yield* waiting.filter((job) => (job.state ?? "pending") === state);
  },
  async get(id: string) {
    const found = waiting.find((job) => job.id === id);
    const blockers = found?.reasons.map((reason) => ({ reason })) ?? [];
    const spec = { resources: { cpu_cores: 3, memory_gb: 4 } };
    return { ...found, name: "big", spec, explanation: { blockers } };
  },
};

const settings: PendingPodSettings = {
  after_seconds: 60,
  gpu_resource: "nvidia.com/gpu",
  pod: {
    metadata: { labels: { app: "heddle" } },
    spec: { priorityClassName: "low", containers: [{ name: "wait", image: "heddle:1" }] },
  },
};
const config = new KubeConfig();
const log = { info: () => {}, warn: () => {}, error: () => {} };
const reconcile = (own = settings) =>
  new PendingPods({
    heddle: { jobs } as never,
    config,
    namespace: "ns",
    cluster: "one",
    settings: own,
    log: log as never,
  }).reconcile(NOW);
const names = () => [...pods.keys()].sort();

beforeAll(async () => {
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  config.loadFromClusterAndUser(
    { name: "a", server: `http://127.0.0.1:${port}`, skipTLSVerify: true },
    { name: "a" },
  );
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  [pods, selectors, refusals, waiting] = [new Map(), [], [], []];
});

it("pending Pods: a gang without room has one for each task, with its requests", async () => {
  waiting = [gang("A1")];
  await reconcile();
  await reconcile();
  expect(names()).toEqual(["heddle-pending-a1-0", "heddle-pending-a1-1"]);
  expect(selectors).toEqual(["heddle.dev/pending=one", "heddle.dev/pending=one"]);
  const { metadata, spec } = pods.get("heddle-pending-a1-1")!;
  expect(metadata?.labels).toEqual({
    app: "heddle",
    "heddle.dev/pending": "one",
    "heddle.dev/job": "job_A1",
  });
  const limits = { "nvidia.com/gpu": "4" };
  const requests = { cpu: "1500m", memory: "2000000000", ...limits };
  expect(spec).toMatchObject({
    priorityClassName: "low",
    containers: [{ image: "heddle:1", resources: { requests, limits } }],
  });
});

it("pending Pods: they go once the gang waits no more; an ended one is made again", async () => {
  waiting = [gang("a"), gang("b")];
  await reconcile();
  const ended = pods.get("heddle-pending-b-0")!;
  pods.set("heddle-pending-b-0", { ...ended, status: { phase: "Failed" } });
  waiting = [gang("b")];
  await reconcile();
  expect(names()).toEqual(["heddle-pending-b-1"]);
  await reconcile();
  expect(names()).toEqual(["heddle-pending-b-0", "heddle-pending-b-1"]);
});

it("pending Pods: none for what another node would not help, nor before its time", async () => {
  waiting = [
    gang("quota", { reasons: ["InsufficientGpu", "QuotaExceeded"] }),
    gang("unknown", { reasons: [] }),
    gang("new", { since: "2026-01-01T00:59:30Z" }),
  ];
  await reconcile();
  expect(names()).toEqual([]);
  waiting = [gang("gpus"), gang("cpus", { tasks: 1, gpu_count: 0, reasons: ["NoNodes"] })];
  await reconcile({ ...settings, gpu_resource: "" });
  expect(names()).toEqual(["heddle-pending-cpus-0"]);
});

it("pending Pods: their number is bounded; the gangs that wait longest come first", async () => {
  const later = { since: "2026-01-01T00:10:00Z" };
  waiting = [gang("late", { tasks: 200, ...later }), gang("old", { tasks: 100 })];
  await reconcile();
  expect(names()).toHaveLength(100);
  waiting = Array.from({ length: 40 }, (_, at) => gang(`n${at}`, { tasks: 1 }));
  await reconcile();
  expect(names()).toHaveLength(32);
});

it("pending Pods: one that is refused keeps no other from being made", async () => {
  waiting = [gang("a")];
  refusals = [403];
  await reconcile();
  expect(names()).toEqual(["heddle-pending-a-1"]);
  refusals = [500];
  await expect(reconcile()).rejects.toMatchObject({ code: 500 });
});

it("pending Pods: their file is checked, and named where it is wrong", () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-pending-"));
  const file = join(folder, "pending.json");
  const read = (value: unknown) => {
    writeFileSync(file, JSON.stringify(value));
    return () => readPendingPodSettings(file, { POD_NAME: "operator-1", POD_UID: "u" });
  };
  const owner = { apiVersion: "v1", kind: "Pod", name: "operator-1", uid: "u" };
  expect(read(settings)()).toMatchObject(settings);
  expect(read(settings)().pod.metadata?.ownerReferences).toEqual([owner]);
  for (const wrong of [null, { ...settings, pod: {} }, { ...settings, after_seconds: "1" }]) {
    expect(read(wrong)).toThrow(`--pending-pods ${file} is not a JSON object`);
  }
  rmSync(folder, { recursive: true });
});

it("pending Pods: a gang larger than all nodes has them while it is accepted", async () => {
  waiting = [gang("A1", { state: "accepted" }), gang("A2", { state: "running" })];
  await reconcile();
  expect(names()).toHaveLength(2);
});
