import { usageAt } from "@heddle/control/jobs/account-changes";
import type { JobIndex } from "@heddle/control/jobs/job-index";
import type { JobsState } from "@heddle/control/jobs/records";
import { servingPlaces } from "@heddle/control/jobs/replica-claims";
import type { Blocker } from "@heddle/scheduler/model";
import type { RoundFigures } from "./round-figures.ts";

const WHOLE_DEVICE_MILLI = 1_000;
const GPU_MILLI_MS_PER_HOUR = 3.6e9;

export interface JobFiguresInput {
  /** By job, what holds it back. */
  readonly blockers: ReadonlyMap<string, readonly Blocker[]>;
  readonly rounds: ReturnType<RoundFigures["figures"]>;
  /** By why, what apply refused of this master's plans. */
  readonly refusals: Readonly<Record<string, number>>;
  readonly nowMs: number;
}

/** Figures of jobs for the cluster's metrics. Pure; quantiles are of the rounds this master led. */
export function jobFigures(state: JobsState, index: JobIndex, input: JobFiguresInput) {
  const { rounds, nowMs } = input;
  return {
    jobs: countStates(state),
    pending_by_reason: countReasons(input.blockers),
    gpus: gpuFigures(state, index),
    scheduler: {
      rounds: rounds.rounds,
      starts: rounds.starts,
      round_ms: { p50: rounds.roundP50Ms, p99: rounds.roundP99Ms },
      refused: input.refusals,
      admission_ms: { p50: rounds.admissionP50Ms, p99: rounds.admissionP99Ms },
    },
    gpu_hours: Object.fromEntries(
      [...state.projects.values()].map(({ name, usage }) => {
        return [name, usageAt(usage, nowMs).windowGpuMilliMs / GPU_MILLI_MS_PER_HOUR];
      }),
    ),
  };
}

function countStates({ jobs }: JobsState): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { state } of jobs.values()) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

/** A job with several reasons counts under each. */
function countReasons(blockers: JobFiguresInput["blockers"]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const list of blockers.values()) {
    for (const reason of new Set(list.map((blocker) => blocker.reason))) {
      counts[reason] = (counts[reason] ?? 0) + 1;
    }
  }
  return counts;
}

/**
 * Devices of nodes that take work. Idle: the share that nothing holds. Fragmentation: of what is
 * free, the share on devices of which a part is held, which no whole-device task can use.
 */
function gpuFigures(state: JobsState, index: JobIndex) {
  let total = 0;
  let free = 0;
  let broken = 0;
  for (const [id, node] of state.nodes) {
    if (node.state !== "ready") continue;
    const held = heldByDevice(state, index, id);
    for (const { devices } of servingPlaces(index, node))
      for (const at of devices) held.set(at, 1_000);
    const sick = new Set(node.quarantined.map(({ device }) => device));
    for (let device = 0; device < node.offer.gpuCount; device++) {
      if (sick.has(device)) continue;
      const left = Math.max(0, WHOLE_DEVICE_MILLI - (held.get(device) ?? 0));
      total += WHOLE_DEVICE_MILLI;
      free += left;
      if (left < WHOLE_DEVICE_MILLI) broken += left;
    }
  }
  return {
    total: total / WHOLE_DEVICE_MILLI,
    held: (total - free) / WHOLE_DEVICE_MILLI,
    idle_percent: percent(free, total),
    fragmentation_percent: percent(broken, free),
  };
}

function heldByDevice(state: JobsState, index: JobIndex, nodeId: string): Map<number, number> {
  const held = new Map<number, number>();
  for (const key of index.tasksByNode.get(nodeId) ?? []) {
    const { devices, gpuMilli } = state.tasks.get(key)!;
    for (const device of devices) held.set(device, (held.get(device) ?? 0) + gpuMilli);
  }
  return held;
}

function percent(part: number, whole: number): number {
  return whole > 0 ? Math.round((part / whole) * 10_000) / 100 : 0;
}
