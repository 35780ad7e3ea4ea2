import type { Steps } from "@heddle/base/async/steps";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { specFaults } from "../records/spec-faults.ts";
import { splitLevel } from "../records/task-request.ts";

/** One change of a job's spec that would let it start now, or at least run at some time. */
export interface SpecChange extends Candidate {
  /** `would_wait` is used only for a job that can never run as it is. */
  readonly outcome: "would_start" | "would_wait";
}

interface Candidate {
  /**
   * The field's name in the spec; `all_amounts` scales the job's GPUs, CPU, memory and the like.
   */
  readonly field: string;
  readonly from: string | number | boolean;
  /** In the units of the spec, for the whole job; null removes the field. */
  readonly to: string | number | boolean | null;
  /** The share of the field that is given up, in 0..1; a dropped constraint counts as a half. */
  readonly cost: number;
}

/** How a changed spec is tried. */
export interface SpecTrial {
  /** Whether everything that it requests is free now and within quotas; called often. */
  fits(spec: SubmitJob): Steps<boolean>;
  /** Whether the scheduler would start it now, considering everything before it. */
  starts(spec: SubmitJob): Steps<boolean>;
  /** Whether it could run on an empty cluster; only where the job as it is never can. */
  readonly isPossible?: ((spec: SubmitJob) => Steps<boolean>) | undefined;
  /** The job's time limit: its own or the cluster's. */
  readonly boundHours: number;
  /** Reservations of jobs before it, which it must not delay. */
  readonly reservations: readonly PreviousReservation[];
}

/** The rank of a job with a reservation, and its reserved start. */
export interface PreviousReservation {
  readonly qosLevel: SpecResources["qos_level"];
  readonly priority: number;
  readonly inHours: number;
}

type SpecResources = SubmitJob["resources"];
type Fits = (spec: SubmitJob) => Steps<boolean>;

/**
 * The cost of a dropped constraint relative to a share of an amount; also that of a higher
 * priority.
 */
const DROPPED_CONSTRAINT_COST = 0.5;
const MAX_PRIORITY = 1_000;
const QOS_LEVELS = ["best_effort", "standard", "guaranteed"] as const;
/** The share of the time until a reserved start that a shorter run may use. */
const SHARE_UNTIL_PROMISE = 0.95;
/** Run times are proposed in hundredths of an hour. */
const RUNS_PER_HOUR = 100;
/** Amounts are searched in thousandths. */
const UNIT = 1_000;
/** Bound on the values tried of a field where larger is not always harder. */
const MAX_SCANNED = 128;
/** Bounds on the trials of one explanation; beyond them it reports what it has found. */
const MAX_FITS = 2_000;
const MAX_STARTS = 64;
/** Bound on full scheduler trials of scaled amounts. */
const MAX_SCALES_STARTED = 4;

/** The shards of a job that trains. */
const SHARDS = "config.parameter_servers";

const AMOUNTS = [
  "cpu_cores",
  "memory_gb",
  "local_ssd_gb",
  "io_operations_per_sec",
  "network_bandwidth_gbps",
  "shared_storage_gb",
] as const satisfies readonly (keyof SpecResources)[];

const OPTIONAL = [
  "gpu_type",
  "gpu_memory_gb",
  "node_affinity",
  "node_anti_affinity",
  "local_ssd_gb",
  "io_operations_per_sec",
  "network_bandwidth_gbps",
  "shared_storage_gb",
] as const satisfies readonly (keyof SpecResources)[];

/**
 * The changes of a single field that would let the job start now, smallest first. If none does, the
 * least scaling of all amounts. For a job that can never run, also changes after which it would
 * wait. Each is tried on the changed spec as a whole, split over its tasks again.
 */
export function* specChanges(spec: SubmitJob, given: SpecTrial): Steps<SpecChange[]> {
  const trial = bounded(given);
  const starting = yield* changesUnder(spec, trial);
  const { isPossible } = trial;
  const possible = isPossible
    ? yield* changesUnder(spec, {
        ...trial,
        fits: isPossible,
        starts: isPossible,
        reservations: [],
      })
    : [];
  const further = possible.filter(
    ({ field, to }) => !starting.some((each) => each.field === field && each.to === to),
  );
  const changes = starting.map((change): SpecChange => ({ ...change, outcome: "would_start" }));
  for (const change of further) {
    const isStart = yield* trial.starts(withChange(spec, change));
    changes.push({ ...change, outcome: isStart ? "would_start" : "would_wait" });
  }
  return changes.sort((a, b) => a.cost - b.cost || (a.field < b.field ? -1 : 1));
}

/** The trial with a bound on its calls, after which it answers no. */
function bounded(trial: SpecTrial): SpecTrial {
  let fits = 0;
  let starts = 0;
  const { isPossible } = trial;
  const isFit = (test: Fits): Fits =>
    function* (spec) {
      yield;
      return fits++ < MAX_FITS && (yield* test(spec));
    };
  return {
    ...trial,
    fits: isFit((spec) => trial.fits(spec)),
    isPossible: isPossible && isFit(isPossible),
    *starts(spec) {
      return starts++ < MAX_STARTS && (yield* trial.starts(spec));
    },
  };
}

/** The single-field changes that pass the trial, or else one of all amounts together. */
function* changesUnder(spec: SubmitJob, trial: SpecTrial): Steps<Candidate[]> {
  const fits: Fits = function* (changed) {
    return specFaults(changed).length === 0 && (yield* trial.fits(changed));
  };
  const isFree = yield* trial.fits(spec);
  // If everything it requests is free, it waits for its turn, and requesting less does not help.
  const candidates = isFree
    ? [...(yield* shorterRuns(spec, fits, trial)), ...earlierTurns(spec, trial)]
    : [
        ...(yield* taskChanges(spec, fits)),
        ...(yield* gpuChanges(spec, fits)),
        ...(yield* amountChanges(spec, fits)),
        ...(yield* shardChanges(spec, fits)),
        ...(yield* shorterRuns(spec, fits, trial)),
        ...(yield* droppedConstraints(spec, fits)),
      ];
  const changes: Candidate[] = [];
  for (const change of candidates) {
    // The first change of a field that helps is the smallest.
    if (changes.some(({ field }) => field === change.field)) continue;
    if (yield* trial.starts(withChange(spec, change))) changes.push(change);
  }
  if (changes.length === 0 && !isFree) changes.push(...(yield* scaledDown(spec, fits, trial)));
  return changes;
}

/** The spec after the change. */
function withChange(spec: SubmitJob, { field, to }: Candidate): SubmitJob {
  if (field === "tasks") return { ...spec, tasks: Number(to) };
  if (field === "max_runtime_hours") return { ...spec, max_runtime_hours: Number(to) };
  if (field === SHARDS) return { ...spec, config: { ...spec.config, parameter_servers: to } };
  if (field === "all_amounts") return scaledTo(spec, Number.parseInt(String(to), 10));
  const resources: Record<string, unknown> = { ...spec.resources };
  if (to === null) delete resources[field];
  else resources[field] = to;
  return { ...spec, resources: resources as SpecResources };
}

/** The nearest other number of tasks over which the request fits. */
function* taskChanges(spec: SubmitJob, fits: Fits): Steps<Candidate[]> {
  const from = spec.tasks;
  if (from === undefined) return [];
  for (let step = 1; step <= MAX_SCANNED; step++) {
    for (const to of [from - step, from + step]) {
      const change = { field: "tasks", from, to, cost: step / Math.max(from, to) };
      if (to < 1 || to > 4_096) continue;
      if (yield* fits(withChange(spec, change))) return [change];
    }
  }
  return [];
}

/** The most GPUs below the request that can be split and fit. */
function* gpuChanges(spec: SubmitJob, fits: Fits): Steps<Candidate[]> {
  const { gpu_count: from } = spec.resources;
  const changed = (to: number): Candidate => {
    return { field: "gpu_count", from, to, cost: (from - to) / from };
  };
  const fitsWith = (to: number) => fits(withChange(spec, changed(to)));
  const tasks = spec.tasks ?? 1;
  const at = (level: number): number => (splitLevel(level) * tasks) / UNIT;
  let below = 0;
  for (let step = 2 ** 20; step >= 1; step /= 2) if (at(below + step) < from) below += step;
  const level = yield* largestThatFits(below, (each) => fitsWith(at(each)));
  if (level === undefined) return [];
  const found = at(level);
  // Without `tasks` their number depends on the GPUs, so more may fit where fewer do not.
  const most = spec.tasks === undefined ? Math.min(Math.ceil(from) - 1, found + MAX_SCANNED) : 0;
  for (let to = most; to > found; to--) if (yield* fitsWith(to)) return [changed(to)];
  return [changed(found)];
}

/** For each amount, the largest smaller value that fits, with the others unchanged. */
function* amountChanges(spec: SubmitJob, fits: Fits): Steps<Candidate[]> {
  const changes: Candidate[] = [];
  for (const field of AMOUNTS) {
    const from = spec.resources[field];
    if (from === undefined) continue;
    const changed = (thousandths: number): Candidate => {
      const to = thousandths / UNIT;
      return { field, from, to, cost: (from - to) / from };
    };
    const most = Math.ceil(from * UNIT) - 1;
    const to = yield* largestThatFits(most, (each) => fits(withChange(spec, changed(each))));
    if (to !== undefined) changes.push(changed(to));
  }
  return changes;
}

/** Fewer shards, if the parameter servers lack places for all. */
function* shardChanges(spec: SubmitJob, fits: Fits): Steps<Candidate[]> {
  const { parameter_servers: from } = spec.config;
  if (typeof from !== "number") return [];
  const changed = (to: number): Candidate => {
    return { field: SHARDS, from, to, cost: (from - to) / from };
  };
  const to = yield* largestThatFits(from - 1, (each) => fits(withChange(spec, changed(each))));
  return to === undefined ? [] : [changed(to)];
}

/** The longest runs within the quota of GPU-hours, and those that end before a reserved start. */
function* shorterRuns(
  spec: SubmitJob,
  fits: Fits,
  { boundHours, reservations }: SpecTrial,
): Steps<Candidate[]> {
  const changed = (hundredths: number): Candidate => {
    const to = hundredths / RUNS_PER_HOUR;
    return {
      field: "max_runtime_hours",
      from: boundHours,
      to,
      cost: (boundHours - to) / boundHours,
    };
  };
  const starts = reservations.map(({ inHours }) => inHours * SHARE_UNTIL_PROMISE);
  const most = [boundHours, ...starts.sort((a, b) => b - a)]
    .map((hours) => Math.ceil(hours * RUNS_PER_HOUR) - 1)
    .filter((hundredths) => hundredths < boundHours * RUNS_PER_HOUR);
  const runs = new Set<number>();
  for (const each of most) {
    const run = yield* largestThatFits(each, (length) => fits(withChange(spec, changed(length))));
    if (run !== undefined) runs.add(run);
  }
  return [...runs].map(changed);
}

/** The changes that move it before a job with a reservation: just above it, or a level up. */
function earlierTurns({ resources }: SubmitJob, { reservations }: SpecTrial): Candidate[] {
  if (reservations.length === 0) return [];
  const { qos_level: level, priority: from } = resources;
  const cost = DROPPED_CONSTRAINT_COST;
  const levels: Candidate[] = QOS_LEVELS.slice(QOS_LEVELS.indexOf(level) + 1).map((to) => {
    return { field: "qos_level", from: level, to, cost };
  });
  const turns = reservations
    .filter(({ qosLevel }) => qosLevel === level)
    .map(({ priority }) => priority + 1)
    .filter((to) => to > from && to <= MAX_PRIORITY)
    .sort((a, b) => a - b)
    .map((to): Candidate => ({ field: "priority", from, to, cost }));
  return [...levels, ...turns];
}

/** Binary search: a smaller amount is never harder to place. Undefined if even 1 does not fit. */
function* largestThatFits(
  most: number,
  fits: (value: number) => Steps<boolean>,
): Steps<number | undefined> {
  if (most < 1 || !(yield* fits(1))) return undefined;
  let low = 1;
  let high = most;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (yield* fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

function* droppedConstraints(spec: SubmitJob, fits: Fits): Steps<Candidate[]> {
  const { resources } = spec;
  const cost = DROPPED_CONSTRAINT_COST;
  const flags = (["same_rack", "infiniband_required"] as const)
    .filter((field) => resources[field])
    .map((field): Candidate => ({ field, from: true, to: false, cost }));
  const fields = OPTIONAL.filter((field) => resources[field] !== undefined).map(
    (field): Candidate => ({ field, from: shown(resources[field]), to: null, cost }),
  );
  const changes: Candidate[] = [];
  for (const change of [...flags, ...fields]) {
    if (yield* fits(withChange(spec, change))) changes.push(change);
  }
  return changes;
}

function shown(value: unknown): string | number {
  return typeof value === "number" || typeof value === "string" ? value : JSON.stringify(value);
}

function* scaledDown(spec: SubmitJob, fits: Fits, trial: SpecTrial): Steps<Candidate[]> {
  let tried = 0;
  for (let percent = 99; percent >= 1 && tried < MAX_SCALES_STARTED; percent--) {
    const scaled = scaledTo(spec, percent);
    if (!(yield* fits(scaled))) continue;
    tried++;
    if (!(yield* trial.starts(scaled))) continue;
    const cost = 1 - percent / 100;
    return [{ field: "all_amounts", from: "100 %", to: `${percent} %`, cost }];
  }
  return [];
}

/** Rounded down to thousandths; the GPUs of each task to whole ones, or to thousandths of one. */
function scaledTo(spec: SubmitJob, percent: number): SubmitJob {
  const resources: Record<string, unknown> = { ...spec.resources };
  for (const field of AMOUNTS) {
    const value = spec.resources[field];
    if (value === undefined) continue;
    resources[field] = Math.max(1, Math.floor((value * UNIT * percent) / 100)) / UNIT;
  }
  const { gpu_count: gpus } = spec.resources;
  const tasks = spec.tasks ?? 1;
  const milli = Math.floor((gpus * UNIT * percent) / 100 / tasks);
  const whole = milli >= UNIT ? milli - (milli % UNIT) : Math.max(1, milli);
  if (gpus > 0) resources["gpu_count"] = (whole * tasks) / UNIT;
  return { ...spec, resources: resources as SpecResources };
}
