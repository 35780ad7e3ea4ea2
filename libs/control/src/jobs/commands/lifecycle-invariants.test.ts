// holds: life-invariants, life-drain-lost-node, sched-gang, sched-stale-plan, ps-placement

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { NEWEST_VERSION } from "../../cluster-version.ts";
import type { ControlCommand } from "../../command.ts";
import { ReplicatedControl } from "../../replicated-control.ts";
import { JobIndex } from "../index/job-index.ts";
import { isTerminal, isUnderWay } from "../records/lifecycle.ts";
import type { JobRecord, JobsState } from "../records/records.ts";
import { indexView } from "../testing/index-view.ts";
import { RANDOM_LIMITS, RandomCommands } from "../testing/random-commands.ts";

/** Sequences are short; the nightly run multiplies their number. */
const SEQUENCES = 25 * Number(process.env["HEDDLE_PROPERTY_RUNS"] ?? 30);
const MAX_COMMANDS = 40;
const WITH_PLACES = new Set(["scheduled", "starting", "running"]);

/** What one sequence has shown of a job so far. */
interface Seen {
  readonly state: string;
  readonly attempt: number;
  readonly terminalEvents: number;
}

/** Checks the invariants at one log index; throws with the one that is broken. */
function check(state: JobsState, seen: Map<string, Seen>, index: number): void {
  for (const event of [...state.events.values()].slice(-64)) {
    if (event.index !== index || event.what.type !== "job") continue;
    const { jobId, state: entered } = event.what;
    const before = seen.get(jobId) ?? { state: "", attempt: 0, terminalEvents: 0 };
    if (isTerminal(before.state as JobRecord["state"]))
      throw new Error(`${jobId} left ${before.state}`);
    const terminalEvents = before.terminalEvents + (isTerminal(entered) ? 1 : 0);
    seen.set(jobId, { ...before, state: entered, terminalEvents });
  }
  const live = liveTasks(state);
  for (const job of state.jobs.values()) {
    const known = seen.get(job.id);
    if (!known || known.state !== job.state)
      throw new Error(`${job.id} is ${job.state} without an event`);
    if (known.terminalEvents !== (isTerminal(job.state) ? 1 : 0))
      throw new Error("terminal events");
    if (job.attempt < known.attempt) throw new Error("an attempt went back");
    seen.set(job.id, { ...known, attempt: job.attempt });
    const own = live.get(job.id) ?? { count: 0, attempts: new Set<number>() };
    if (own.attempts.size > 1) throw new Error("two attempts with live fencing tokens");
    if (own.count !== job.liveTasks) throw new Error(`${own.count} live, not ${job.liveTasks}`);
    checkSuspicion(job);
    checkDrain(state, job);
    if (job.state === "succeeded" && job.changedIndex === index) checkSuccess(state, job);
    if (!WITH_PLACES.has(job.state)) continue;
    checkGang(state, job);
    checkShards(state, job);
  }
  checkCapacity(state);
}

/** An unconfirmed failure is visible, times out, and exists only while an attempt continues. */
function checkSuspicion({ id, state, suspectedMs, dueMs, failure }: JobRecord): void {
  if (suspectedMs === undefined) return;
  reached.set("suspected", (reached.get("suspected") ?? 0) + 1);
  const goesOn = isUnderWay(state) && state !== "scheduled";
  if (!goesOn || dueMs === undefined || !failure) throw new Error(`${id} waits for ever`);
}

/** Nothing runs on a node whose drain was ordered, also if it was lost in between. */
function checkDrain(state: JobsState, job: JobRecord): void {
  if (!isUnderWay(job.state)) return;
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(`${job.id}/${job.attempt}/${rank}`);
    if (!task || task.phase === "exited") continue;
    const node = state.nodes.get(task.nodeId)?.state;
    if (node === "draining" || node === "drained") {
      throw new Error(`${job.id} is ${job.state} on ${task.nodeId}, which is ${node}`);
    }
  }
}

/** GPUs held by the one project of all jobs, and the jobs that hold something. */
function heldOf(state: JobsState) {
  const holding = [...state.jobs.values()].filter(({ liveTasks }) => liveTasks > 0);
  let gpuMilli = 0;
  for (const { phase, devices, gpuMilli: each } of state.tasks.values()) {
    if (phase !== "exited") gpuMilli += devices.length * each;
  }
  for (const { serving } of state.nodes.values()) {
    for (const { devices } of serving) gpuMilli += 1_000 * devices.length;
  }
  for (const { devices } of state.replicas.values()) gpuMilli += 1_000 * devices.length;
  return { gpuMilli, jobs: holding.length };
}

/** GPU-hours used, plus those that running work may still use up to its bound. */
function committedHours(state: JobsState, atMs: number): number {
  const { usage } = state.projects.get("default")!;
  let milliMs =
    usage.windowGpuMilliMs + usage.heldGpuMilli * Math.min(300_000, atMs - usage.asOfMs);
  const leftMs = (sinceMs: number) => Math.max(0, sinceMs + RANDOM_LIMITS.jobTimeoutMs - atMs);
  for (const { phase, devices, gpuMilli, jobId } of state.tasks.values()) {
    if (phase === "exited") continue;
    const { startedAtMs, sinceMs } = state.jobs.get(jobId)!;
    milliMs += devices.length * gpuMilli * leftMs(startedAtMs ?? sinceMs);
  }
  for (const { devices, grantedAtMs } of state.replicas.values()) {
    milliMs += 1_000 * devices.length * leftMs(grantedAtMs);
  }
  for (const { serving, joinedAtMs, offer } of state.nodes.values()) {
    // A replica that the scheduler placed is counted by its place.
    if (state.replicas.has(`m@${offer.id}`)) continue;
    for (const { devices } of serving) milliMs += 1_000 * devices.length * leftMs(joinedAtMs);
  }
  return milliMs / 3.6e9;
}

/** After a plan started something, every quota and limit holds, whatever the plan said. */
function checkQuota(state: JobsState, atMs: number, before: ReturnType<typeof heldOf>): void {
  const held = heldOf(state);
  if (held.jobs > before.jobs && held.jobs > RANDOM_LIMITS.maxConcurrentJobs) {
    throw new Error(`${held.jobs} jobs run`);
  }
  const { gpuMilli, gpuHours } = state.projects.get("default")?.quota ?? {};
  if (held.gpuMilli === before.gpuMilli) return;
  if (gpuMilli !== undefined && held.gpuMilli > gpuMilli) {
    throw new Error(`${held.gpuMilli} of ${gpuMilli} GPU thousandths are held`);
  }
  const committed = gpuHours === undefined ? 0 : committedHours(state, atMs);
  if (gpuHours !== undefined && committed > gpuHours + 1e-6) {
    throw new Error(`${committed} of ${gpuHours} GPU-hours are committed`);
  }
}

function liveTasks(state: JobsState) {
  const live = new Map<string, { count: number; attempts: Set<number> }>();
  for (const task of state.tasks.values()) {
    if (task.phase === "exited") continue;
    const own = live.get(task.jobId) ?? { count: 0, attempts: new Set() };
    own.count++;
    own.attempts.add(task.attempt);
    live.set(task.jobId, own);
  }
  return live;
}

/** A job that trains has its shards on servers that hold them. */
function checkShards(state: JobsState, job: JobRecord): void {
  const trains = state.specs.get(job.id)?.command === undefined;
  if ((job.shards?.length ?? 0) !== (trains ? 3 : 0)) throw new Error("shards are missing");
  for (const id of job.shards ?? []) {
    if (state.servers.get(id)?.state !== "ready") throw new Error(`a shard is on ${id}, lost`);
  }
}

/** A job with reserved places has every rank: live, or ended well, but not all of them. */
function checkGang(state: JobsState, job: JobRecord): void {
  if (job.liveTasks === 0)
    throw new Error(`${job.id} is ${job.state}, and nothing of it continues`);
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(`${job.id}/${job.attempt}/${rank}`);
    const isThere = task && task.phase !== "lost" && task.exit?.reason === undefined;
    // A failure that looks like the loss of another rank's node stays unconfirmed.
    if (job.suspectedMs !== undefined && task?.exit?.reason !== undefined) continue;
    if (!isThere) throw new Error(`a partial gang: rank ${rank} of ${job.id} in ${job.state}`);
  }
}

/** Every task ended well. For training: rank 0 did, and the losses are within the tolerance. */
function checkSuccess(state: JobsState, job: JobRecord): void {
  const { failure_tolerance: tolerance, command } = state.specs.get(job.id)!;
  const tasks = Array.from({ length: job.tasks }, (_, rank) =>
    state.tasks.get(`${job.id}/${job.attempt}/${rank}`),
  );
  if (tasks.some((task) => task?.phase !== "exited")) throw new Error("it succeeded too early");
  const lost = tasks.filter((task) => task?.exit?.reason !== undefined);
  if (lost.length === 0) return;
  const isCovered = command === undefined && lost.length <= tolerance && !lost.includes(tasks[0]);
  const areLost = lost.every((task) => task?.exit?.reason === "NodeLost");
  if (!isCovered || !areLost) throw new Error(`${job.id} succeeded without ${lost.length} tasks`);
}

function checkCapacity(state: JobsState): void {
  const held = new Map<string, number>();
  for (const { phase, nodeId, devices, gpuMilli } of state.tasks.values()) {
    if (phase === "exited") continue;
    for (const device of devices) {
      const key = `${nodeId}/${device}`;
      held.set(key, (held.get(key) ?? 0) + gpuMilli);
    }
  }
  for (const { nodeId, devices, failure } of state.replicas.values()) {
    if (!failure && state.nodes.get(nodeId)?.state === "drained") {
      throw new Error(`a replica holds a place on ${nodeId}, which is drained`);
    }
    for (const device of devices) {
      const key = `${nodeId}/${device}`;
      held.set(key, (held.get(key) ?? 0) + 1_000);
    }
  }
  for (const [key, milli] of held) if (milli > 1_000) throw new Error(`${key} holds ${milli}`);
}

/** The index that apply keeps equals one built from the state alone. */
function checkIndex({ state, jobs }: ReplicatedControl): void {
  expect(indexView(jobs, state)).toEqual(indexView(new JobIndex(state), state));
}

function controlOf(version: number): ReplicatedControl {
  const control = new ReplicatedControl();
  control.state.cluster.set("version", version);
  return control;
}

function replay(log: readonly ControlCommand[], version: number): ReplicatedControl {
  const control = controlOf(version);
  for (const [at, command] of log.entries()) control.apply({ type: "control", command }, at + 1);
  return control;
}

/** The states that the sequences reached, to check that they reach all. */
const reached = new Map<string, number>();

async function runSequence(seed: number): Promise<void> {
  const random = seededRandom(seed);
  // One in ten runs by the rules of version 1.
  const version = seed % 10 === 0 ? 1 : NEWEST_VERSION;
  const control = controlOf(version);
  const commands = new RandomCommands(random, control.state);
  const log: ControlCommand[] = [];
  const seen = new Map<string, Seen>();
  const length = 4 + Math.floor(random() * MAX_COMMANDS);
  const cut = Math.floor(random() * length);
  let snapshot: string[] = [];
  for (let index = 1; index <= length; index++) {
    // As JSON, as in the log.
    const command = JSON.parse(JSON.stringify(commands.next())) as ControlCommand;
    log.push(command);
    const held = command.type === "plan.commit" ? heldOf(control.state) : undefined;
    control.apply({ type: "control", command }, index);
    check(control.state, seen, index);
    if (held) checkQuota(control.state, command.atMs, held);
    if (index === cut || index === length) checkIndex(control);
    if (seed % 7 === 0 && index === cut) snapshot = [...control.snapshot()];
  }
  for (const { what } of control.state.events.values()) {
    reached.set(what.state, (reached.get(what.state) ?? 0) + 1);
  }
  if (seed % 4 === 0 && replay(log, version).hash !== control.hash)
    throw new Error("the replay differs");
  if (snapshot.length === 0) return;
  const restored = new ReplicatedControl();
  await restored.restore(snapshot);
  for (let at = cut; at < length; at++) {
    restored.apply({ type: "control", command: log[at]! }, at + 1);
  }
  const lines = [...restored.snapshot()];
  const differs = [...control.snapshot()].filter((line, at) => line !== lines[at]);
  if (differs.length > 0) throw new Error(`a restored master differs: ${differs.join("; ")}`);
}

test(`lifecycle: its invariants hold at every index of ${SEQUENCES} random sequences`, async () => {
  const first = Math.floor(Math.random() * 2 ** 31);
  console.log(`first seed ${first}`);
  for (let n = 0; n < SEQUENCES; n++) {
    try {
      await runSequence(first + n);
    } catch (error) {
      throw new Error(`seed ${first + n}: ${String(error)}`, { cause: error });
    }
  }
  console.log(Object.fromEntries(reached));
  if (SEQUENCES < 5_000) return;
  const states = [
    "suspected",
    "accepted",
    "pending",
    "scheduled",
    "starting",
    "running",
    "checkpointing",
  ];
  const rare = ["preempted", "suspended", "recovering", "retrying", "cancelling"];
  const ends = ["succeeded", "failed", "cancelled"];
  for (const state of [...states, ...rare, ...ends]) {
    expect(reached.get(state) ?? 0, state).toBeGreaterThan(SEQUENCES / 1_000);
  }
  // Pure computation: only a loaded machine is slow here.
}, 3_600_000);
