import type { Steps } from "@heddle/base/async/steps";
import { holdings } from "../cluster/fair-share.ts";
import type { Ledger } from "../cluster/ledger.ts";
import { levelOf } from "../cluster/precedence.ts";
import { addShared, sharedFits } from "../cluster/shared-amounts.ts";
import type { JobTraits, RunningJob } from "../model.ts";
import { type GangRequest, gangFits, type PlacedTask } from "../placement/gang.ts";
import { type Release, releaseAll, releaseUntil, TASKS_PER_STEP, takeAll } from "./releases.ts";

/** A job that may be evicted. */
export interface Victim {
  readonly job: RunningJob;
  readonly release: Release;
  /** GPU-seconds since its last checkpoint. */
  readonly lostGpuSeconds: number;
}

/** Victims of one node of which every subset is tried. */
const MAX_EXACT_VICTIMS = 10;

/** GPU-seconds that the job loses if it stops now: its GPUs times the age of its checkpoint. */
export function lostGpuSeconds(job: RunningJob, nowMs: number): number {
  return (holdings(job).gpuMilli / 1000) * (Math.max(0, nowMs - job.checkpointedAtMs) / 1000);
}

/** Whether the job is preemptible, of a strictly lower level, and not being evicted yet. */
export function mayPreempt(preemptor: JobTraits, job: RunningJob): boolean {
  return job.preemptible && !job.evicting && levelOf(job) < levelOf(preemptor);
}

/**
 * The victims whose eviction lets the gang fit at the least loss; undefined if none do.
 *
 * - For one task: exact over the ten cheapest victims of each node.
 * - For a gang: cheapest first, by loss and by loss per GPU; then each unneeded victim is spared.
 *   Every victim of the result is necessary.
 */
export function* chooseVictims(
  ledger: Ledger,
  gang: GangRequest,
  victims: readonly Victim[],
): Steps<Victim[] | undefined> {
  const cheapestFirst = [...victims].sort(byLoss);
  const first = yield* cheapestPrefix(ledger, gang, cheapestFirst);
  const second =
    gang.tasks === 1
      ? yield* cheapestOnOneNode(ledger, gang, cheapestFirst, first)
      : yield* cheapestPrefix(ledger, gang, [...victims].sort(byLossPerGpu));
  if (!first || !second) return first ?? second;
  return loss(second) < loss(first) ? second : first;
}

function byLoss(a: Victim, b: Victim): number {
  return a.lostGpuSeconds - b.lostGpuSeconds || (a.job.id < b.job.id ? -1 : 1);
}

function byLossPerGpu(a: Victim, b: Victim): number {
  const perGpu = ({ job, lostGpuSeconds: lost }: Victim): number =>
    lost / Math.max(1, holdings(job).gpuMilli);
  return perGpu(a) - perGpu(b) || byLoss(a, b);
}

function loss(victims: readonly Victim[]): number {
  return victims.reduce((sum, { lostGpuSeconds: lost }) => sum + lost, 0);
}

/** The shortest sufficient prefix, without the victims in it that are not needed. */
function* cheapestPrefix(
  ledger: Ledger,
  gang: GangRequest,
  ordered: readonly Victim[],
): Steps<Victim[] | undefined> {
  const releases = ordered.map(({ release }) => release);
  let base = ledger.clone();
  let released = 0;
  let low = 0;
  let high = ordered.length;
  for (let probe = high; ; probe = (low + high) >> 1) {
    const then = base.clone();
    yield* releaseUntil(then, releases.slice(released, probe), Number.POSITIVE_INFINITY);
    yield;
    if (gangFits(then, gang)) high = probe;
    else if (probe === ordered.length) return undefined;
    else {
      low = probe + 1;
      base = then;
      released = probe;
    }
    if (low >= high) return yield* spare(ledger, gang, ordered.slice(0, high));
  }
}

/** Spares each victim that is not needed, the most expensive first. */
function* spare(ledger: Ledger, gang: GangRequest, victims: readonly Victim[]): Steps<Victim[]> {
  const then = ledger.clone();
  yield* releaseUntil(
    then,
    victims.map(({ release }) => release),
    Number.POSITIVE_INFINITY,
  );
  const needed = new Set(victims);
  for (const victim of [...victims].sort(byLoss).reverse()) {
    yield;
    takeAll(then, victim.release);
    if (gangFits(then, gang)) needed.delete(victim);
    else releaseAll(then, victim.release);
  }
  return [...needed];
}

/** The cheapest sufficient subset of one node's victims, if it is cheaper than the bound. */
function* cheapestOnOneNode(
  ledger: Ledger,
  gang: GangRequest,
  victims: readonly Victim[],
  bound: readonly Victim[] | undefined,
): Steps<Victim[] | undefined> {
  let best: Victim[] | undefined;
  let leastLoss = bound ? loss(bound) : Number.POSITIVE_INFINITY;
  for (const [node, here] of yield* victimsByNode(gang, victims)) {
    yield;
    const subset = cheapestSubset(ledger, gang, node, here, leastLoss);
    if (!subset) continue;
    best = subset.map(({ victim }) => victim);
    leastLoss = loss(best);
  }
  return best;
}

/** A victim and its tasks on one node. */
interface LocalVictim {
  readonly victim: Victim;
  readonly tasks: PlacedTask[];
}

/** For each eligible node: its cheapest victims. */
function* victimsByNode(
  { shape }: GangRequest,
  victims: readonly Victim[],
): Steps<ReadonlyMap<number, readonly LocalVictim[]>> {
  const byNode = new Map<number, LocalVictim[]>();
  let examined = 0;
  for (const victim of victims) {
    for (const task of victim.release.tasks) {
      if (shape.eligible[task.node] === 0) continue;
      const here = byNode.get(task.node) ?? [];
      byNode.set(task.node, here);
      if (here.at(-1)?.victim === victim) here.at(-1)!.tasks.push(task);
      else if (here.length < MAX_EXACT_VICTIMS) here.push({ victim, tasks: [task] });
    }
    examined += 1 + victim.release.tasks.length;
    if (examined < TASKS_PER_STEP) continue;
    examined = 0;
    yield;
  }
  return byNode;
}

function cheapestSubset(
  ledger: Ledger,
  gang: GangRequest,
  node: number,
  victims: readonly LocalVictim[],
  bound: number,
): LocalVictim[] | undefined {
  let best: LocalVictim[] | undefined;
  let leastLoss = bound;
  for (let mask = 1; mask < 1 << victims.length; mask++) {
    const subset = victims.filter((_, bit) => (mask >> bit) & 1);
    const lost = loss(subset.map(({ victim }) => victim));
    if (lost >= leastLoss || !fitsOnNodeWithout(ledger, gang, node, subset)) continue;
    best = subset;
    leastLoss = lost;
  }
  return best;
}

function fitsOnNodeWithout(
  ledger: Ledger,
  { shape, shared }: GangRequest,
  node: number,
  victims: readonly LocalVictim[],
): boolean {
  const free = victims.reduce(
    (sum, { victim }) => addShared(sum, victim.release.shared, 1),
    ledger.shared,
  );
  if (!sharedFits(free, shared)) return false;
  for (const { victim, tasks } of victims) {
    for (const { devices } of tasks) ledger.release(node, victim.release.shape, devices);
  }
  const fits = ledger.fits(node, shape);
  for (const { victim, tasks } of victims) {
    for (const { devices } of tasks) ledger.take(node, victim.release.shape, devices);
  }
  return fits;
}
