import { seededRandom } from "@heddle/base/random";
import { type SchedulingSnapshot, snapshotFrom } from "@heddle/scheduler/cycle/scheduling-cycle";
import { DEFAULT_SETTINGS, type QueuedJob, type RunningJob } from "@heddle/scheduler/model";
import { entryKey } from "@heddle/scheduler/plan-entry";
import { decide } from "@heddle/scheduler/schedule";
import { syntheticJob, syntheticNode } from "./throughput.ts";

const NODES = 5_000;
const FILL = 60_000;
const WAITING = 2_000;
const PINNED = 200;
const ROUNDS = 7;
const SEED = 42;
const HOUR_MS = 3_600_000;

/** The cost of a decision on a full cluster with waiting jobs. */
export interface WaitingCosts {
  readonly nodes: number;
  readonly running: number;
  /** Keyed by what waits. */
  readonly cases: Readonly<Record<string, WaitingCost>>;
}

interface WaitingCost {
  readonly waiting: number;
  readonly starts: number;
  readonly evicted: number;
  /** CPU time of one decision, with the layout kept from the last; the median. */
  readonly cpuMs: number;
}

/**
 * Measures decisions that start little or nothing: reservations, evictions, backfill, explanations.
 */
export function measureWaitingJobs(): WaitingCosts {
  const random = seededRandom(SEED);
  const nodes = Array.from({ length: NODES }, (_, at) => {
    const node = syntheticNode(at, random);
    return { ...node, labels: { ...node.labels, host: node.id } };
  });
  const fill = Array.from({ length: FILL }, (_, at) => syntheticJob(at, random));
  const empty = snapshotFrom({
    snapshot: { index: 1, nodes, running: [], projects: [] },
    queue: fill,
    nowMs: 0,
    settings: { ...DEFAULT_SETTINGS, maxConcurrentJobs: 10 * FILL },
  });
  const running = started(empty, fill);
  for (const job of running) empty.view.put(job);
  const cases = Object.entries(queues(nodes.map(({ id }) => id)));
  return {
    nodes: NODES,
    running: running.length,
    cases: Object.fromEntries(cases.map(([name, queue]) => [name, cost({ ...empty, queue })])),
  };
}

function started(baseline: SchedulingSnapshot, jobs: readonly QueuedJob[]): RunningJob[] {
  const byId = new Map(jobs.map((job) => [entryKey(job.entry), job]));
  return decide(baseline).starts.map(({ entry, placements }, at) => {
    const { shared: _, entry: __, ...job } = byId.get(entryKey(entry))!;
    const ends = { maxRuntimeMs: (1 + (at % 97)) * HOUR_MS };
    return {
      id: entryKey(entry),
      ...job,
      ...ends,
      placements,
      startedAtMs: 0,
      checkpointedAtMs: 0,
      priority: -1,
    };
  });
}

/** The waiting queues, by the name in the report. */
function queues(hosts: readonly string[]): Record<string, QueuedJob[]> {
  const random = seededRandom(SEED + 1);
  const draw = (priority: number) =>
    Array.from({ length: WAITING }, (_, at) => {
      const job = syntheticJob(FILL + at, random);
      return { ...job, priority, maxRuntimeMs: (1 + (at % 50)) * HOUR_MS };
    });
  const pinned = (job: QueuedJob, host: string): QueuedJob => {
    const nodeAffinity = [{ key: "host", operator: "in" as const, values: [host] }];
    const request = { ...job.request, gpus: 4, gpuMilli: 1_000, nodeAffinity };
    return { ...job, request, priority: job.priority + 1 };
  };
  const below = draw(-2);
  const above = draw(0);
  const mixed = (of: readonly QueuedJob[], count: number) =>
    of.map((job, at) => (at < count ? pinned(job, hosts[(17 * at) % hosts.length]!) : job));
  return {
    "jobs of the lowest level": below,
    "jobs that evict": above,
    "the same behind one pinned to a node": mixed(above, 1),
    [`the same behind ${PINNED} pinned to nodes`]: mixed(above, PINNED),
  };
}

function cost(baseline: SchedulingSnapshot): WaitingCost {
  const times: number[] = [];
  let plan = decide(baseline);
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    plan = decide(baseline);
    const { user, system } = process.cpuUsage(before);
    times.push((user + system) / 1_000);
  }
  const cpuMs = times.sort((a, b) => a - b)[ROUNDS >> 1]!;
  return {
    waiting: baseline.queue.length,
    starts: plan.starts.length,
    evicted: plan.preemptions.length,
    cpuMs: Number(cpuMs.toFixed(1)),
  };
}
