// holds: sched-ledger

import { seededRandom } from "@heddle/base/random";
import { snapshotFrom } from "@heddle/scheduler/cycle/scheduling-cycle";
import { expect, test } from "vitest";
import type { ControlCommand } from "../../command.ts";
import { ReplicatedControl } from "../../replicated-control.ts";
import type { ControlState } from "../../state.ts";
import { requestedFragments } from "../records/task-request.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { RandomCommands } from "../testing/random-commands.ts";
import { jobId, jobSpec, scheduledModel } from "../testing/specs.ts";
import { wantedReplicas } from "./replica-claims.ts";
import { schedulingInput } from "./scheduling-input.ts";

const SEQUENCES = Number(process.env["HEDDLE_PROPERTY_RUNS"] ?? 30);
const COMMANDS = 80;

/** Thousandths free by device, from the records of nodes, tasks and replicas alone. */
function freeDevices(state: ControlState): Record<string, number[]> {
  const free = new Map<string, number[]>();
  for (const { offer, quarantined } of state.nodes.values()) {
    const unhealthy = new Set(quarantined.map(({ device }) => device));
    free.set(
      offer.id,
      Array.from({ length: offer.gpuCount }, (_, device) => (unhealthy.has(device) ? 0 : 1_000)),
    );
    const take = (devices: readonly number[], milli: number) => {
      const row = free.get(offer.id)!;
      for (const device of devices)
        if (!unhealthy.has(device) && device in row) row[device]! -= milli;
    };
    const placed = [...state.replicas.values()].filter(({ nodeId }) => nodeId === offer.id);
    const names = new Set(placed.map(({ deployment }) => deployment));
    for (const { devices } of placed) take(devices, 1_000);
    for (const { nodeId, phase, devices, gpuMilli } of state.tasks.values()) {
      if (nodeId === offer.id && phase !== "exited") take(devices, gpuMilli);
    }
    for (const { deployment, devices } of state.nodes.get(offer.id)!.serving) {
      if (!names.has(deployment)) take(devices, 1_000);
    }
  }
  return Object.fromEntries(free);
}

/** Thousandths of GPU that each project holds, from the same records. */
function heldGpus(state: ControlState): Record<string, number> {
  const held: Record<string, number> = {};
  const hold = (project: string, milli: number) => {
    if (milli > 0) held[project] = (held[project] ?? 0) + milli;
  };
  for (const { jobId: id, phase, devices, gpuMilli } of state.tasks.values()) {
    if (phase !== "exited") hold(state.jobs.get(id)!.project, devices.length * gpuMilli);
  }
  for (const { devices } of state.replicas.values()) hold("default", 1_000 * devices.length);
  return held;
}

/** Some jobs request shared storage, or shards of a model in fragments. */
function vary(command: ControlCommand, random: () => number): Record<string, unknown> {
  if (command.type === "node.join") {
    return { ...command, offer: { ...command.offer, algorithms: ["ppo", "weave"] } };
  }
  if (command.type === "clock.tick" && random() < 0.3) {
    return { type: "setting.put", atMs: command.atMs, name: "shared_storage_gb", value: 100 };
  }
  if (command.type !== "job.submit") return { ...command };
  const { spec } = command;
  const shared_storage_gb = random() < 0.3 ? Math.ceil(random() * 60) : 0;
  const resources = { ...spec.resources, shared_storage_gb };
  const weave = { algorithm: "weave", config: { parameter_servers: 3, fragments: 2 } };
  const isTraining = spec.algorithm !== undefined;
  return { ...command, spec: { ...spec, resources, ...(isTraining && weave) } };
}

function checkSequence(seed: number): void {
  const random = seededRandom(seed);
  const control = new ReplicatedControl();
  const commands = new RandomCommands(random, control.state);
  for (let index = 1; index <= COMMANDS; index++) {
    const command = JSON.parse(JSON.stringify(vary(commands.next(), random)));
    control.apply({ type: "control", command }, index);
    const input = schedulingInput(control.state, control.jobs, { index, nowMs: command.atMs });
    const { roster, free } = snapshotFrom(input).view;
    const devices = roster.present().map((node) => {
      const row = free.rowOf(roster.position(node.id)!);
      return [node.id, row.slice(0, node.devices.length)];
    });
    expect(Object.fromEntries(devices)).toEqual(freeDevices(control.state));
    const accounts = [...control.state.projects.values()]
      .filter(({ usage }) => usage.heldGpuMilli !== 0)
      .map(({ name, usage }) => [name, usage.heldGpuMilli]);
    expect(Object.fromEntries(accounts)).toEqual(heldGpus(control.state));
    const { running, shared } = input.snapshot;
    const storageMb = running.reduce((sum, job) => sum + (job.shared?.storageMb ?? 0), 0);
    expect(storageMb + shared!.free.storageMb).toBe(shared!.limit.storageMb);
    for (const [server, limit] of shared!.limit.places) {
      const held = running.reduce((sum, job) => sum + (job.shared?.places.get(server) ?? 0), 0);
      expect(held + shared!.free.places.get(server)!).toBe(limit);
    }
  }
}

test("running jobs: their amounts and the free ones make up the cluster", () => {
  const first = Math.floor(Math.random() * 2 ** 31);
  console.log(`first seed ${first}`);
  for (let n = 0; n < SEQUENCES; n++) {
    try {
      checkSequence(first + n);
    } catch (error) {
      throw new Error(`seed ${first + n}: ${String(error)}`, { cause: error });
    }
  }
});

test("running jobs: an ended attempt holds a lost node until it is fenced", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 } });
  cluster.run(1);
  const fencedAtMs = cluster.atMs + 150_000;
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs });
  const leaving = { evicting: { byMs: fencedAtMs } };
  expect(cluster.view().snapshot.running).toMatchObject([{ tasks: 2, ...leaving }]);
  cluster.report(1, "exited", { endedAtMs: cluster.atMs });
  const [entry] = cluster.view().snapshot.running;
  expect(entry).toMatchObject({ tasks: 1, placements: [{ nodeId: "a" }], ...leaving });
});

test("running jobs: lost work counts from the start or a later checkpoint", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { retry_limit: 1 });
  cluster.run(1);
  const checkpointedAtMs = () => cluster.view().snapshot.running[0]!.checkpointedAtMs;
  const firstStartMs = cluster.job(1).startedAtMs!;
  expect(checkpointedAtMs()).toBe(firstStartMs);
  const checkpoint = { name: "c", attempt: 1, step: 1, atMs: firstStartMs + 500 };
  cluster.do({ type: "jobs.progress", entries: [{ jobId: jobId(1), attempt: 1, checkpoint }] });
  expect(checkpointedAtMs()).toBe(firstStartMs + 500);
  cluster.report(1, "exited", { reason: "ExitCode", exitCode: 1, endedAtMs: 1 });
  cluster.pass(10_000);
  cluster.run(1);
  const { startedAtMs } = cluster.job(1);
  expect(startedAtMs).toBeGreaterThan(firstStartMs + 500);
  expect(checkpointedAtMs()).toBe(startedAtMs);
});

test("running jobs: recovered tasks request no shared storage again", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  cluster.do({ type: "setting.put", name: "shared_storage_gb", value: 10 });
  const resources = { gpu_count: 2, shared_storage_gb: 8 };
  cluster.submit(1, { tasks: 2, failure_tolerance: 1, resources });
  cluster.run(1);
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs: cluster.atMs });
  cluster.fence();
  cluster.join("c", { gpuCount: 1 });
  const [queued] = cluster.view().queue;
  expect(queued).toMatchObject({ tasks: 1, joinsRunning: true, shared: undefined });
  expect(cluster.plan().plan.starts).toMatchObject([{ placements: [{ nodeId: "c" }] }]);
});

test("holdings: a node's serving devices count for the serving project", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 4 });
  const held = () => cluster.control.jobs.holdings.gpuMilli("default");
  const serve = (...devices: number[][]) => {
    const serving = devices.map((each, n) => ({ deployment: `m${n}`, devices: each }));
    cluster.do({ type: "node.update", nodeId: "a", serving });
  };
  serve([0, 1], [2]);
  expect(held()).toBe(3_000);
  serve([2]);
  expect(held()).toBe(1_000);
  serve();
  expect(held()).toBe(0);
});

test("replicas: with more places than replicas the oldest is kept", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  const deploy = (replicas: number) =>
    cluster.do({ ...scheduledModel("m", replicas, cluster.atMs) });
  deploy(1);
  cluster.plan();
  const [first] = [...cluster.control.state.replicas.values()].map(({ nodeId }) => nodeId);
  cluster.do({ type: "model.remove", id: "m" });
  deploy(2);
  cluster.plan();
  expect(cluster.control.state.replicas.size).toBe(2);
  cluster.do({ type: "model.remove", id: "m" });
  deploy(1);
  const wanted = wantedReplicas(cluster.control.state).get("m");
  expect([...wanted!.keys()]).toEqual([first]);
});

test("shards: only weave cuts a model into fragments", () => {
  const training = (algorithm: string) =>
    jobSpec({ command: undefined, algorithm, config: { fragments: 3 } });
  expect(requestedFragments(training("weave"))).toBe(3);
  expect(requestedFragments(training("a-plugin"))).toBe(1);
});
