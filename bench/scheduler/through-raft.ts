import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seededRandom } from "@heddle/base/random";
import { lockDirectory } from "@heddle/consensus/member/directory-lock";
import { CLUSTER_SETTINGS } from "@heddle/contracts/api/settings";
import type { ControlCommand } from "@heddle/control/command";
import { createLogger } from "@heddle/observability/logger";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { RaftControlPlane } from "../../apps/master/dist/control-plane/raft/raft-control-plane.js";
import { RaftService } from "../../apps/master/dist/control-plane/raft/raft-service.js";
import { Scheduling } from "../../apps/master/dist/orchestration/scheduling/scheduling.js";
import { schedulingStep } from "../../apps/master/dist/orchestration/scheduling/scheduling-step.js";
import { joinOf, submitOf } from "./control-commands.ts";
import { syntheticJob, syntheticNode } from "./throughput.ts";

const NODES = 5_000;
const JOBS = 10_000;
const SEED = 42;
/** Concurrent submissions. */
const CLIENTS = 256;

/**
 * Placements per second through a single master's real log: each counts once its entry is durable
 * and applied with its checks.
 */
export interface RaftThroughput {
  readonly nodes: number;
  readonly jobs: number;
  readonly placed: number;
  /** Log entries with the placements. */
  readonly plans: number;
  /** All jobs wait when the first plan is made. */
  readonly perSecond: number;
  /** Only submissions, each an entry of its own, 256 at once. */
  readonly submitsPerSecond: number;
  /** Submitted and placed concurrently. */
  readonly streamedPerSecond: number;
}

/** Measures on the synthetic cluster and mix of the other throughput results. */
export async function measureThroughRaft(): Promise<RaftThroughput> {
  const waiting = await withMaster(async (plane) => {
    const submitted = await timed(() => submitAll(plane));
    const before = plane.appliedIndex;
    const placed = await timed(() => placeAll(plane, () => true));
    return { submitted, placed, plans: plane.appliedIndex - before, count: placedOf(plane) };
  });
  const streamed = await withMaster(async (plane) => {
    const seconds = await timed(async () => {
      let done = false;
      const submitting = submitAll(plane).then(() => {
        done = true;
      });
      await placeAll(plane, () => done);
      await submitting;
    });
    return placedOf(plane) / seconds;
  });
  return {
    nodes: NODES,
    jobs: JOBS,
    placed: waiting.count,
    plans: waiting.plans,
    perSecond: Math.round(waiting.count / waiting.placed),
    submitsPerSecond: Math.round(JOBS / waiting.submitted),
    streamedPerSecond: Math.round(streamed),
  };
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await run();
  return (performance.now() - startMs) / 1_000;
}

async function withMaster<T>(run: (plane: RaftControlPlane) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "heddle-bench-"));
  const credentials = { clusterToken: "a-token-for-benchmarks-only" };
  const directory = join(folder, "control");
  await mkdir(directory);
  const server = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const plane = await RaftControlPlane.open({
    directory,
    credentials,
    server,
    name: "m1",
    service: new RaftService(),
    lock: await lockDirectory(directory),
    peers: new Map([["m1", server.address]]),
    logger: createLogger({ service: "bench", level: "silent" }),
    onFatal: raise,
    onRemoved: raise,
  });
  try {
    while (plane.status().role !== "leader") await new Promise((done) => setTimeout(done, 20));
    await prepare(plane);
    return await run(plane);
  } finally {
    await plane.close();
    await closeServer(server.server, 100);
    await rm(folder, { recursive: true });
  }
}

function raise(error: Error): never {
  throw error;
}

async function prepare(plane: RaftControlPlane): Promise<void> {
  const name = "max_concurrent_jobs";
  const value = CLUSTER_SETTINGS[name].maximum;
  await plane.propose({ type: "setting.put", atMs: Date.now(), name, value });
  const random = seededRandom(SEED);
  const nodes = Array.from({ length: NODES }, (_, at) => syntheticNode(at, random));
  await proposeAll(plane, nodes.map(joinOf));
}

async function submitAll(plane: RaftControlPlane): Promise<void> {
  const random = seededRandom(SEED + 1);
  await proposeAll(
    plane,
    Array.from({ length: JOBS }, (_, at) => submitOf(at, syntheticJob(at, random))),
  );
}

async function proposeAll(
  plane: RaftControlPlane,
  commands: readonly ControlCommand[],
): Promise<void> {
  let next = 0;
  const client = async () => {
    for (let command = commands[next++]; command; command = commands[next++]) {
      const reply = await plane.propose(command);
      if (!reply.ok) throw new Error(reply.message);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

/**
 * Plan after plan, as in the leader's loop, until all jobs have their places and no more arrive.
 */
async function placeAll(plane: RaftControlPlane, noMore: () => boolean): Promise<void> {
  const scheduling = new Scheduling(plane);
  for (;;) {
    const wasLast = noMore();
    const before = placedOf(plane);
    await schedulingStep({ ...scheduling, control: plane, acknowledgeMs: 3_600_000 });
    if (wasLast && placedOf(plane) === before) return;
    await new Promise((done) => setTimeout(done, 1));
  }
}

function placedOf(plane: RaftControlPlane): number {
  return plane.state.tasks.size;
}
