import { type Random, seededRandom } from "@heddle/base/random";
import { Ledger } from "@heddle/scheduler/cluster/ledger";
import { Roster } from "@heddle/scheduler/cluster/roster";
import { ShapeTable } from "@heddle/scheduler/cluster/shape";
import {
  DEFAULT_SETTINGS,
  type NodeSnapshot,
  type QueuedJob,
  type WorkloadTarget,
} from "@heddle/scheduler/model";
import { GangPlacer } from "@heddle/scheduler/placement/gang";
import { Stranding } from "@heddle/scheduler/placement/stranding";
import { countTargets, targetMix } from "@heddle/scheduler/placement/targets";
import { jobEntry } from "@heddle/scheduler/plan-entry";
import { schedule } from "@heddle/scheduler/schedule";
import { nodeSnapshot, policyRequest } from "./heddle-policy.ts";
import type { TracePod } from "./trace.ts";

const NODES = 5_000;
const JOBS = 20_000;
const SEED = 42;

/**
 * Placements per second of single-task jobs on an empty cluster of 5,000 GPU nodes, in one thread:
 * the fastest of three runs.
 */
export interface SchedulerThroughput {
  readonly nodes: number;
  readonly gpus: number;
  readonly jobs: number;
  /** Distinct requests among the jobs. */
  readonly shapes: number;
  readonly placed: number;
  /** The placement path alone: pick the node, pick the devices, take them. */
  readonly placement: number;
  /** The whole of `schedule`: reading the snapshot, fair order, quotas, placement, the plan. */
  readonly schedule: number;
}

/** Measures on a synthetic cluster: three kinds of node, jobs of a mix of shapes. */
export function measureSchedulerThroughput(): SchedulerThroughput {
  const random = seededRandom(SEED);
  const nodes = Array.from({ length: NODES }, (_, i) => syntheticNode(i, random));
  const jobs = Array.from({ length: JOBS }, (_, i) => syntheticJob(i, random));
  const targets = countTargets(jobs);
  const placement = fastest(() => timePlacement(nodes, jobs, targets));
  const whole = fastest(() => timeSchedule(nodes, jobs, targets));
  return {
    nodes: NODES,
    gpus: nodes.reduce((sum, { devices }) => sum + devices.length, 0),
    jobs: JOBS,
    shapes: SHAPES.length,
    placed: placement.placed,
    placement: Math.round(placement.perSecond),
    schedule: Math.round(whole.perSecond),
  };
}

interface Timing {
  readonly placed: number;
  readonly perSecond: number;
}

/** Runs of each measurement; the fastest counts, since other work on the machine only slows it. */
const RUNS = 3;

function fastest(run: () => Timing): Timing {
  const timings = Array.from({ length: RUNS }, run);
  return timings.reduce((best, timing) => (timing.perSecond > best.perSecond ? timing : best));
}

function timePlacement(
  nodes: readonly NodeSnapshot[],
  jobs: readonly QueuedJob[],
  targets: readonly WorkloadTarget[],
): Timing {
  const startMs = performance.now();
  const stranding = new Stranding(targetMix(targets));
  const placer = new GangPlacer(Ledger.ofCapacity(new Roster(nodes), 1), stranding);
  const shapes = new ShapeTable(new Roster(nodes));
  let placed = 0;
  for (const { request } of jobs) {
    const gang = { tasks: 1, sameRack: false, strategy: "fragmentation" } as const;
    if (placer.place({ ...gang, shape: shapes.of(request) })) placed++;
  }
  return { placed, perSecond: placed / ((performance.now() - startMs) / 1000) };
}

function timeSchedule(
  nodes: readonly NodeSnapshot[],
  queue: readonly QueuedJob[],
  targets: readonly WorkloadTarget[],
): Timing {
  const startMs = performance.now();
  const plan = schedule({
    snapshot: { index: 1, nodes, running: [], projects: [] },
    queue,
    nowMs: 0,
    settings: { ...DEFAULT_SETTINGS, maxConcurrentJobs: JOBS, targets },
  });
  const placed = plan.starts.length;
  return { placed, perSecond: placed / ((performance.now() - startMs) / 1000) };
}

/** One node of the synthetic cluster. */
export function syntheticNode(i: number, random: Random): NodeSnapshot {
  const kind = random();
  const [model, gpus, cores] =
    kind < 0.6 ? ["H100", 8, 128] : kind < 0.85 ? ["A100", 8, 96] : (["L4", 4, 64] as const);
  return nodeSnapshot({
    name: `node-${i}`,
    cpuMilli: Number(cores) * 1000,
    memoryMib: Number(cores) * 8192,
    gpus: Number(gpus),
    model: String(model),
  });
}

/** GPUs, thousandths per device, cores, relative frequency. */
const SHAPES: readonly (readonly [number, number, number, number])[] = [
  [1, 1000, 8, 20],
  [1, 1000, 11, 14],
  [1, 1000, 16, 6],
  [1, 1000, 4, 6],
  [1, 810, 3, 8],
  [1, 500, 8, 8],
  [1, 470, 8, 6],
  [1, 320, 4, 5],
  [1, 250, 4, 5],
  [1, 100, 2, 3],
  [2, 1000, 16, 5],
  [2, 1000, 24, 3],
  [4, 1000, 32, 3],
  [4, 1000, 48, 2],
  [8, 1000, 64, 2],
  [8, 1000, 96, 1],
  [0, 0, 8, 2],
  [0, 0, 16, 1],
];

/** Each shape's position as often as its frequency says. */
const KINDS = SHAPES.flatMap(([, , , frequency], kind) => new Array<number>(frequency).fill(kind));

/** One job of the synthetic mix. */
export function syntheticJob(i: number, random: Random): QueuedJob {
  const kind = KINDS[Math.floor(random() * KINDS.length)]!;
  const [gpus, gpuMilli, cores] = SHAPES[kind]!;
  const pod: TracePod = {
    kind,
    cpuMilli: cores * 1000,
    memoryMib: cores * 4096,
    gpus,
    gpuMilli,
    models: [],
  };
  return {
    entry: jobEntry(`job-${i}`),
    project: `project-${i % 20}`,
    queue: "default",
    kind: "training",
    qosLevel: "standard",
    priority: 0,
    preemptible: true,
    tasks: 1,
    request: policyRequest(pod),
    submittedAtMs: i,
    waitingFor: [],
    notBeforeMs: 0,
    sameRack: false,
  };
}
