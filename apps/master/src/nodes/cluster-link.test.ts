// holds: ops-node-wire

import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { Attachment } from "@heddle/node-agent/masters/attachment";
import { Attachments } from "@heddle/node-agent/masters/attachments";
import { KnownMasters } from "@heddle/node-agent/masters/known-masters";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  clusterToken,
  collect,
  deltaText,
  scriptedText,
  TestCluster,
} from "../../test/test-cluster.ts";
import type { ControlGroup } from "../control-plane/control-group.ts";

let cluster: TestCluster;

beforeEach(async () => {
  cluster = new TestCluster();
  await cluster.startMaster();
  cluster.control.deploy("m");
});

afterEach(() => cluster.close());

test("call: a worker process answers over gRPC, from the first event to done", async () => {
  await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const answer = await cluster.start("m", "@tokens=5");
  const events = await collect(answer.events);
  expect(events.map((event) => event.type)).toContain("started");
  expect(deltaText(events)).toBe(scriptedText(5));
  expect(events.at(-1)).toMatchObject({ type: "done", usage: { completionTokens: 5 } });
  expect(answer.node).toBe(cluster.node("worker-1"));
});

test("worker kill -9: its answer fails with worker_lost, others serve at once", async () => {
  const first = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const answer = await cluster.start("m", "@tokens=100000 @every=5");
  await cluster.startWorker();
  await cluster.workersReady("m", 2);
  setTimeout(() => first.kill("SIGKILL"), 50);
  const events = await collect(answer.events);
  expect(events.at(-1)).toMatchObject({ type: "failed", error: { code: "worker_lost" } });
  expect(events.length).toBeGreaterThan(2);
  const next = await cluster.start("m", "@tokens=3");
  expect(deltaText(await collect(next.events))).toBe(scriptedText(3));
  expect(next.node).toBe(cluster.node("worker-2"));
  expect(cluster.link.stats().workerLost).toBe(1);
});

test("worker death before the first event: the call moves to another worker", async () => {
  const first = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const controller = new AbortController();
  const pending = held(cluster.start("m", "@hang", { signal: controller.signal }));
  await eventually(() => running() === 1, "the call is on the worker");
  await cluster.startWorker();
  await cluster.workersReady("m", 2);
  first.kill("SIGKILL");
  await once(first, "exit");
  await eventually(() => running() === 1, "the call is on the other worker");
  expect(cluster.link.stats().retries).toBe(1);
  controller.abort();
  await expect(pending).rejects.toMatchObject({ code: "cancelled" });
});

// holds: api-retry
test("worker stall: a call without an event goes to the same process again", async () => {
  await cluster.stopMaster();
  // A worker is expected back for 30 intervals, which must exceed the keepalive's 15 s by far.
  await cluster.startMaster({ fixedTimes: { nodeHeartbeatMs: 2_000 } });
  const worker = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const node = cluster.node("worker-1");
  worker.kill("SIGSTOP");
  const pending = held(cluster.start("m", "@tokens=3"));
  await eventually(() => cluster.link.stats().workerLost === 1, "its stream is dropped");
  await eventually(() => cluster.link.directory.nodes().length === 0, "its node is gone");
  worker.kill("SIGCONT");
  const answer = await pending;
  expect(deltaText(await collect(answer.events))).toBe(scriptedText(3));
  expect(answer.node).toBe(node);
  expect(cluster.link.stats()).toMatchObject({ started: 1, retries: 1, overloaded: 0 });
});

// holds: ops-node-join
test("worker restart: the new process takes over the id; old answers are dropped", async () => {
  const first = await cluster.startWorker({ name: "same" });
  await cluster.workersReady("m", 1);
  const id = cluster.node("same");
  first.kill("SIGKILL");
  await once(first, "exit");
  await eventually(() => cluster.link.directory.nodes().length === 0, "the node is gone");
  await cluster.startWorker({ name: "same" });
  await cluster.workersReady("m", 1);
  expect(cluster.node("same")).toBe(id);
  const answer = await cluster.start("m", "@tokens=2");
  expect(deltaText(await collect(answer.events))).toBe(scriptedText(2));
});

const asServer = { clusterToken, node: { role: "parameter-server", name: "ps-1" } } as const;

test("attach: a node leaves a silently removed master and finds its replacement", async () => {
  const said: string[] = [];
  const say = (_fields: object, fact: string) => void said.push(fact);
  const master = cluster.link.grpcAddress;
  const register = {
    nodeId: "n-1",
    incarnation: "1",
    kind: "NODE_KIND_PARAMETER_SERVER" as const,
    name: "ps-1",
    address: "127.0.0.1:1",
    version: "1",
  };
  const attachment = new Attachment({
    master,
    register: () => register,
    credentials: asServer,
    times: { removedRestMs: 20 },
    followed: new FollowedCluster(cluster.folder),
    heartbeat: () => ({ replicas: [] }),
    log: { info: say, warn: say, error: say },
  });
  try {
    await eventually(() => said.includes("attached"), "it is attached");
    cluster.control.fault = new AppError("member_removed", "master-1 was removed");
    await cluster.link.close();
    const left = "detached from a master that was removed from its group";
    await eventually(() => said.includes(left), "it has left");
    await cluster.stopMaster();
    // Time for some attempts that get no answer; their number does not matter.
    await delay(200);
    cluster.control.fault = undefined;
    await cluster.startMaster({ grpcPort: Number(master.split(":")[1]) });
    await eventually(() => said.at(-1) === "attached", "it is attached again");
    expect(said).toEqual(["attached", left, "attached"]);
  } finally {
    await attachment.close();
  }
});

// holds: consensus-removed-address
test("attach: a node forgets a master removed in its absence until it is a member", async () => {
  const other = new TestCluster();
  await other.startMaster({ masterId: "master-2" });
  const said: { fact: string; master: string }[] = [];
  const say = (fields: object, fact: string) => {
    said.push({ fact, master: (fields as { master: string }).master });
  };
  const [gone, stays] = [other.link.grpcAddress, cluster.link.grpcAddress];
  const setMembers = (...names: string[]) => {
    const members = names.map((name) => ({ name, address: name === "master-1" ? stays : gone }));
    const group = { status: () => ({ members }) } as unknown as ControlGroup;
    cluster.control.group = group;
    other.control.group = group;
  };
  setMembers("master-1", "master-2");
  const followed = new FollowedCluster(cluster.folder);
  const register = {
    nodeId: "n-1",
    incarnation: "1",
    kind: "NODE_KIND_PARAMETER_SERVER" as const,
    name: "ps-1",
    address: "127.0.0.1:1",
    version: "1",
  };
  const attachments = new Attachments({
    masters: new KnownMasters({ given: [gone, stays], staysHere: true, followed }),
    register: () => register,
    credentials: asServer,
    followed,
    heartbeat: () => ({ replicas: [] }),
    log: { info: say, warn: say, error: say },
  });
  const ofGone = () => said.filter(({ master }) => master === gone).map(({ fact }) => fact);
  const dropped = "not reconnected: it was removed from the masters";
  const retrying = "not attached to a master, retrying";
  try {
    await eventually(() => said.length === 2, "it is attached to both");
    await other.stopMaster();
    await eventually(() => ofGone().includes(retrying), "it looks for the one that died");
    setMembers("master-1");
    await eventually(() => ofGone().at(-1) === dropped, "it has dropped its address");
    await other.startMaster({ masterId: "master-2", grpcPort: Number(gone.split(":")[1]) });
    expect(other.link.directory.nodes()).toEqual([]);
    expect(ofGone().at(-1)).toBe(dropped);
    setMembers("master-1", "master-2");
    await eventually(() => ofGone().at(-1) === "attached", "it is attached again");
    await other.stopMaster();
    await eventually(() => ofGone().at(-1) === retrying, "it looks for it");
    setMembers("master-1");
    await eventually(() => ofGone().at(-1) === dropped, "it has dropped it again");
    await cluster.stopMaster();
    await eventually(() => ofGone().at(-1) === retrying, "without a reply from any it tries it");
  } finally {
    await attachments.close();
    await other.close();
  }
});

test("attach: workers return to a restarted master and answer it", async () => {
  const worker = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const port = Number(cluster.link.grpcAddress.split(":")[1]);
  const answer = await cluster.start("m", "@tokens=100000 @every=5");
  await cluster.stopMaster();
  const events = await collect(answer.events);
  expect(events.at(-1)).toMatchObject({ type: "failed", error: { code: "worker_lost" } });
  await cluster.startMaster({ grpcPort: port });
  await cluster.workersReady("m", 1);
  await eventually(() => running() === 0, "the lost answer's slot is free");
  const again = await cluster.start("m", "@tokens=3");
  expect(deltaText(await collect(again.events))).toBe(scriptedText(3));
  expect(worker.exitCode).toBeNull();
});

test("attach: two masters use one worker at once, each on its own stream", async () => {
  const other = new TestCluster();
  await other.startMaster({ masterId: "master-2" });
  other.control.deploy("m");
  const masters = [cluster.link.grpcAddress, other.link.grpcAddress];
  await cluster.startWorker({ masters });
  await Promise.all([cluster.workersReady("m", 1), other.workersReady("m", 1)]);
  const lengths = [30, 40, 50];
  const texts = await Promise.all(
    lengths.flatMap((tokens) =>
      [cluster, other].map(async (each) => {
        const answer = await each.start("m", `@tokens=${tokens} @every=1`);
        return deltaText(await collect(answer.events));
      }),
    ),
  );
  expect(texts).toEqual(lengths.flatMap((tokens) => [scriptedText(tokens), scriptedText(tokens)]));
  const open = await other.start("m", "@tokens=100000 @every=5");
  await eventually(() => running() === 1, "the first master sees the other's load");
  await other.close();
  expect((await collect(open.events)).at(-1)).toMatchObject({ type: "failed" });
  await eventually(() => running() === 0, "the closed master's requests have ended");
});

// holds: sec-cluster-token
test("attach: a node with another cluster token is refused", async () => {
  await cluster.startWorker({ clusterToken: "another-token-here" });
  await delay(500);
  expect(cluster.link.directory.nodes()).toEqual([]);
});

test("SIGTERM: open answers finish, the worker gets no new call, exit code 0", async () => {
  const worker = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const answer = await cluster.start("m", "@tokens=100 @every=5");
  const exited = once(worker, "exit");
  worker.kill("SIGTERM");
  const events = await collect(answer.events);
  expect(deltaText(events)).toBe(scriptedText(100));
  expect(events.at(-1)).toMatchObject({ type: "done" });
  expect(await exited).toEqual([0, null]);
  await eventually(() => cluster.link.directory.nodes().length === 0, "it has left");
});

test("SIGTERM: waits for a slow reader and loses nothing of its answer", async () => {
  const worker = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const answer = await cluster.start("m", "@tokens=3000");
  await eventually(() => {
    return cluster.link.directory.nodes()[0]?.replicas[0]?.load.generatedTokens === 3_000;
  }, "its engine is done");
  const exited = once(worker, "exit");
  worker.kill("SIGTERM");
  await eventually(() => cluster.link.directory.nodes().length === 0, "it has left");
  expect(deltaText(await collect(answer.events))).toBe(scriptedText(3_000));
  expect(await exited).toEqual([0, null]);
});

test("heartbeats: a worker without them gets no new calls and is dropped", async () => {
  const worker = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const { directory } = cluster.link;
  const { id } = directory.nodes()[0]!;
  worker.kill("SIGSTOP");
  await eventually(() => directory.nodes().length === 0, "the silent node is dropped");
  expect(directory.silentMs(id)).toBeGreaterThan(0);
  // A node that never attached counts as silent since this master started.
  expect(directory.silentMs(id)).toBeLessThan(directory.silentMs("another"));
  // It may return, so a call waits for it.
  const waiting = cluster.start("m", "@tokens=1");
  worker.kill("SIGCONT");
  await waiting;
});

// holds: ops-node-join
test("directory: lists the node's machine, address and replicas", async () => {
  await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const [node] = cluster.link.directory.nodes();
  expect(node).toMatchObject({ kind: "worker", name: "worker-1", version: "test" });
  expect(node?.cpuCount).toBeGreaterThan(0);
  expect(node?.memoryBytes).toBeGreaterThan(node?.memoryUsedBytes ?? 0);
  expect(Math.abs(Date.now() - (node?.lastSeenMs ?? 0))).toBeLessThan(60_000);
  expect(node?.replicas[0]?.info?.engine).toBe("scripted");
});

// holds: ps-boot
test("attach: a parameter server attaches as one and takes no calls", async () => {
  await cluster.startParameterServer("ps");
  await eventually(() => cluster.link.directory.nodes().length === 1, "it is attached");
  expect(cluster.link.directory.nodes()[0]).toMatchObject({ kind: "parameter-server", name: "ps" });
  await expect(cluster.start("m", "x")).rejects.toMatchObject({ code: "unavailable" });
});

test("pull: reports progress up to done, and failures with the source's reason", async () => {
  const weights = { key: "pull-150", file: "a.gguf", sources: ["builtin://"] };
  const pull = (key: string) => {
    const spec = { key: "m", engine: "llama", weights: { ...weights, key }, options: {} } as const;
    return cluster.link.directory.pull(spec, new AbortController().signal);
  };
  await expect(collect(pull("any"))).rejects.toMatchObject({ code: "unavailable" });
  await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const progress = await collect(pull("pull-150"));
  expect(progress[0]).toMatchObject({ pulledBytes: 5, totalBytes: 10, done: false });
  expect(progress.at(-1)).toMatchObject({ pulledBytes: 10, totalBytes: 10, done: true });
  await expect(collect(pull("missing"))).rejects.toMatchObject({
    code: "not_found",
    message: "no source has missing",
  });
});

function running(): number {
  const replicas = cluster.link.directory.nodes().flatMap((node) => node.replicas);
  return replicas.reduce((sum, { load }) => sum + load.running + load.waiting, 0);
}
