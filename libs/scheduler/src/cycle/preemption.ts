import { holdings } from "../cluster/fair-share.ts";
import type { Ledger } from "../cluster/ledger.ts";
import { levelOf } from "../cluster/precedence.ts";
import { addShared, sharedFits } from "../cluster/shared-amounts.ts";
import type { JobTraits, RunningJob } from "../model.ts";
import { type GangRequest, gangFits } from "../placement/gang.ts";
import { type Release, releaseAll } from "./releases.ts";

/** A job that may be evicted, what it would give back, and the work that would be lost. */
export interface Victim {
  readonly job: RunningJob;
  readonly release: Release;
  /** GPU-seconds since its last checkpoint. */
  readonly lostGpuSeconds: number;
}

/** Victims tried together on one node: all their subsets are looked at up to this many. */
const MAX_EXACT_VICTIMS = 10;

/** GPU-seconds of work that the job loses if it stops now: its GPUs times its checkpoint's age. */
export function lostGpuSeconds(job: RunningJob, nowMs: number): number {
  return (holdings(job).gpuMilli / 1000) * (Math.max(0, nowMs - job.checkpointedAtMs) / 1000);
}

/** Whether the job may be evicted for the other: preemptible, strictly lower, not leaving yet. */
export function mayPreempt(preemptor: JobTraits, job: RunningJob): boolean {
  return job.preemptible && !job.evicting && levelOf(job) < levelOf(preemptor);
}

/**
 * The victims whose going lets the gang fit at the least loss, or undefined where none do.
 *
 * For a single task it is exact over each node's ten cheapest victims. For a gang it is a
 * heuristic: cheapest first, by loss and by loss per GPU, then every victim that turns out not to be needed is spared; no
 * victim of the answer can be left out.
 */
export function chooseVictims(
  ledger: Ledger,
  gang: GangRequest,
  victims: readonly Victim[],
): Victim[] | undefined {
  const cheapestFirst = [...victims].sort(byLoss);
  const answers = [cheapestPrefix(ledger, gang, cheapestFirst)];
  if (gang.tasks === 1) answers.push(...perNode(ledger, gang, cheapestFirst));
  else answers.push(cheapestPrefix(ledger, gang, [...victims].sort(byLossPerGpu)));
  return answers
    .filter((answer) => answer !== undefined)
    .reduce<Victim[] | undefined>((best, answer) => {
      return best === undefined || loss(answer) < loss(best) ? answer : best;
    }, undefined);
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

/** The shortest prefix that makes room, with those spared that are not needed. */
function cheapestPrefix(
  ledger: Ledger,
  gang: GangRequest,
  ordered: readonly Victim[],
): Victim[] | undefined {
  if (!makesRoom(ledger, gang, ordered)) return undefined;
  let low = 0;
  let high = ordered.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (makesRoom(ledger, gang, ordered.slice(0, middle))) high = middle;
    else low = middle + 1;
  }
  return spare(ledger, gang, ordered.slice(0, low));
}

/** Spares the dearest first. */
function spare(ledger: Ledger, gang: GangRequest, victims: readonly Victim[]): Victim[] {
  let needed = [...victims];
  for (const victim of [...victims].sort(byLoss).reverse()) {
    const without = needed.filter((other) => other !== victim);
    if (makesRoom(ledger, gang, without)) needed = without;
  }
  return needed;
}

/** For each node with victims, the cheapest subset of its ten cheapest that makes room there. */
function perNode(
  ledger: Ledger,
  gang: GangRequest,
  victims: readonly Victim[],
): (Victim[] | undefined)[] {
  const byNode = new Map<number, Set<Victim>>();
  for (const victim of victims) {
    for (const { node } of victim.release.tasks) {
      if (gang.shape.eligible[node] === 0) continue;
      const here = byNode.get(node) ?? new Set();
      if (here.size < MAX_EXACT_VICTIMS) here.add(victim);
      byNode.set(node, here);
    }
  }
  return [...byNode].map(([node, here]) => cheapestSubset(ledger, gang, node, [...here]));
}

function cheapestSubset(
  ledger: Ledger,
  gang: GangRequest,
  node: number,
  victims: readonly Victim[],
): Victim[] | undefined {
  let best: Victim[] | undefined;
  for (let mask = 1; mask < 1 << victims.length; mask++) {
    const subset = victims.filter((_, bit) => (mask >> bit) & 1);
    if (best !== undefined && loss(subset) >= loss(best)) continue;
    if (fitsOnNodeWithout(ledger, gang, node, subset)) best = subset;
  }
  return best;
}

function fitsOnNodeWithout(
  ledger: Ledger,
  { shape, shared }: GangRequest,
  node: number,
  victims: readonly Victim[],
): boolean {
  const free = victims.reduce(
    (sum, { release }) => addShared(sum, release.shared, 1),
    ledger.shared,
  );
  if (!sharedFits(free, shared)) return false;
  const moves = victims.flatMap(({ release }) =>
    release.tasks.filter((task) => task.node === node).map((task) => ({ task, of: release.shape })),
  );
  for (const { task, of } of moves) ledger.release(node, of, task.devices);
  const fits = ledger.fits(node, shape);
  for (const { task, of } of moves) ledger.take(node, of, task.devices);
  return fits;
}

function makesRoom(ledger: Ledger, gang: GangRequest, victims: readonly Victim[]): boolean {
  const then = ledger.clone();
  for (const { release } of victims) releaseAll(then, release);
  return gangFits(then, gang);
}
