import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import type { ClusterMetricsReply } from "@heddle/contracts/api/cluster";
import { usageAt } from "@heddle/control/jobs/records/account-changes";
import type { JobsState } from "@heddle/control/jobs/records/records";
import { servingPlaces } from "@heddle/control/jobs/scheduling/replica-claims";
import { storedBytesOf } from "@heddle/control/project-storage";
import type { Blocker } from "@heddle/scheduler/model";
import { Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { Scheduling } from "../orchestration/scheduling/scheduling.ts";
import { WaitingTimes } from "./waiting-times.ts";

const WHOLE_DEVICE_MILLI = 1_000;
const GPU_MILLI_MS_PER_HOUR = 3.6e9;

/** Metrics of jobs for GET /cluster/metrics and /metrics. */
export class JobFigures {
  readonly #control: ControlPlane;
  readonly #scheduling: Scheduling;
  readonly #waits: WaitingTimes;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(Scheduling) scheduling: Scheduling,
  ) {
    this.#control = control;
    this.#scheduling = scheduling;
    this.#waits = new WaitingTimes(control);
  }

  /** All from the replicated state; only `scheduler` covers this master's own rounds. */
  *figures(nowMs: number): Steps<ClusterMetricsReply["jobs"]> {
    const { state } = this.#control;
    const { rounds, starts, roundP50Ms, roundP99Ms } = this.#scheduling.cycles.figures();
    const gpuHours: Record<string, number> = {};
    yield* forEachInSteps(state.projects.values(), ({ name, usage }) => {
      gpuHours[name] = usageAt(usage, nowMs).windowGpuMilliMs / GPU_MILLI_MS_PER_HOUR;
    });
    return {
      by_state: yield* countStates(state),
      pending_by_reason: yield* countReasons(this.#scheduling.plans.allBlockers()),
      ...(yield* this.#waits.figures()),
      gpus: yield* gpuFigures(this.#control),
      gpu_hours: gpuHours,
      storage: yield* storageFigures(this.#control),
      scheduler: {
        rounds,
        starts,
        round_ms: { p50: roundP50Ms, p99: roundP99Ms },
        refused: this.#scheduling.cache.refusals.counts(),
      },
    };
  }
}

/** Projects that store something, or have a quota of it. */
function* storageFigures({
  state,
  jobs,
}: ControlPlane): Steps<ClusterMetricsReply["jobs"]["storage"]> {
  const figures: ClusterMetricsReply["jobs"]["storage"] = {};
  const names = new Set(jobs.storage.projects);
  for (const { name, quota } of state.projects.values()) {
    if (quota.storageBytes !== undefined) names.add(name);
  }
  yield* forEachInSteps(names, (name) => {
    const limit_bytes = state.projects.get(name)?.quota.storageBytes ?? null;
    figures[name] = { bytes: storedBytesOf(jobs.storage.useOf(name)), limit_bytes };
  });
  return figures;
}

function* countStates({ jobs }: JobsState): Steps<Record<string, number>> {
  const counts: Record<string, number> = {};
  yield* forEachInSteps(jobs.values(), ({ state }) => {
    counts[state] = (counts[state] ?? 0) + 1;
  });
  return counts;
}

/** A job with several reasons counts under each. */
function* countReasons(
  blockers: ReadonlyMap<string, readonly Blocker[]>,
): Steps<Record<string, number>> {
  const counts: Record<string, number> = {};
  yield* forEachInSteps(blockers.values(), (list) => {
    for (const reason of new Set(list.map((blocker) => blocker.reason))) {
      counts[reason] = (counts[reason] ?? 0) + 1;
    }
  });
  return counts;
}

/**
 * Devices of nodes that take work. Idle: the free share. Fragmentation: the part of the free share
 * that is on partly used devices, where no whole-device task fits.
 */
function* gpuFigures(control: ControlPlane): Steps<ClusterMetricsReply["jobs"]["gpus"]> {
  let total = 0;
  let free = 0;
  let broken = 0;
  let quarantined = 0;
  let simulated = 0;
  yield* forEachInSteps(control.state.nodes.values(), (node) => {
    quarantined += node.quarantined.length;
    if (node.state !== "ready") return;
    const held = heldByDevice(control, node.offer.id);
    for (const { devices } of servingPlaces(control.jobs, node))
      for (const at of devices) held.set(at, WHOLE_DEVICE_MILLI);
    const unusable = new Set(node.quarantined.map(({ device }) => device));
    for (let device = 0; device < node.offer.gpuCount; device++) {
      if (unusable.has(device)) continue;
      const left = Math.max(0, WHOLE_DEVICE_MILLI - (held.get(device) ?? 0));
      total += WHOLE_DEVICE_MILLI;
      if (node.offer.simulated) simulated++;
      free += left;
      if (left < WHOLE_DEVICE_MILLI) broken += left;
    }
  });
  return {
    total: total / WHOLE_DEVICE_MILLI,
    held: (total - free) / WHOLE_DEVICE_MILLI,
    quarantined,
    simulated,
    idle_percent: percent(free, total),
    fragmentation_percent: percent(broken, free),
  };
}

function heldByDevice({ state, jobs }: ControlPlane, nodeId: string): Map<number, number> {
  const held = new Map<number, number>();
  for (const key of jobs.tasksByNode.get(nodeId) ?? []) {
    const { devices, gpuMilli } = state.tasks.get(key)!;
    for (const device of devices) held.set(device, (held.get(device) ?? 0) + gpuMilli);
  }
  return held;
}

function percent(part: number, whole: number): number {
  return whole > 0 ? Math.round((part / whole) * 10_000) / 100 : 0;
}
