// holds: sched-reservations

import { runToEnd } from "@heddle/base/async/steps";
import fc from "fast-check";
import { expect, it } from "vitest";
import { gangOf, type SchedulingInput, snapshotFrom } from "../cycle/scheduling-cycle.ts";
import type { Plan, QueuedJob } from "../model.ts";
import { type GangRequest, gangFits, usableNodes } from "../placement/gang.ts";
import { entryKey, isSameEntry, jobEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { advance, endMs, nextChangeMs } from "../testing/advance.ts";
import { fillers, nodes, pinnedQueues, queues, strategies } from "../testing/arbitraries.ts";
import { HOUR_MS, input } from "../testing/scenarios.ts";
import { Ledger } from "./ledger.ts";
import { levelOf } from "./precedence.ts";

/** Cases of each property: a third of them have several reservations. */
const RUNS = Number(process.env["HEDDLE_PROPERTY_RUNS"] ?? 40);
/** The maximum number of reservations at a time. */
const MAX_PROMISES = 16;

/** Clusters in use with many preemptible jobs, some of them leaving, and a new queue. */
const inputs: fc.Arbitrary<SchedulingInput> = fc
  .record({
    cluster: nodes,
    low: fillers,
    second: queues,
    third: pinnedQueues,
    strategy: strategies,
  })
  .map(({ cluster, low, second, third, strategy }) => {
    let at = input({ nodes: cluster }, low, { settings: { defaultStrategy: strategy } });
    at = advance(at, schedule(at), HOUR_MS / 2);
    at = { ...at, queue: named("k", second.slice(0, 6), at.nowMs) };
    at = advance(at, schedule(at), at.nowMs + 1_000);
    return { ...at, queue: [...at.queue, ...named("m", third, at.nowMs)] };
  });

/** Each submitted a little later than the one before. */
function named(prefix: string, jobs: readonly QueuedJob[], nowMs: number): QueuedJob[] {
  return jobs.map((job, n) => ({
    ...job,
    entry: jobEntry(`${prefix}${entryKey(job.entry)}`),
    submittedAtMs: nowMs + n,
  }));
}

/** The jobs of the queue that wait for capacity in the plan, in the order of their turns. */
function waiting(at: SchedulingInput, plan: Plan): QueuedJob[] {
  return plan.pending.map(({ entry }) => at.queue.find((job) => isSameEntry(job.entry, entry))!);
}

/** The empty cluster, and the gangs of jobs on it. */
function emptied(at: SchedulingInput) {
  const { view } = snapshotFrom(at);
  const of = (job: QueuedJob): GangRequest =>
    runToEnd(gangOf({ settings: at.settings, view }, job));
  return { of, usable: (job: QueuedJob) => usableNodes(view.capacity, of(job)), view };
}

const meet = (a: Uint8Array, b: Uint8Array) => a.some((one, node) => one === 1 && b[node] === 1);

it("reservations: none is on nodes of an earlier job or of another one", () => {
  let several = 0;
  fc.assert(
    fc.property(inputs, (at) => {
      const plan = schedule(at);
      const { usable, view } = emptied(at);
      const turns = waiting(at, plan);
      several += plan.reservations.length > 1 ? 1 : 0;
      for (const { entry, placements } of plan.reservations.slice(1)) {
        const turn = turns.findIndex((job) => isSameEntry(job.entry, entry));
        const own = new Uint8Array(view.roster.slots.length);
        for (const { nodeId } of placements) own[view.roster.position(nodeId)!] = 1;
        for (const before of turns.slice(0, turn)) {
          const waits = plan.ranked.includes(before.entry) || blocksOthers(at, plan, before);
          if (waits) expect(meet(own, usable(before))).toBe(false);
        }
      }
    }),
    { numRuns: RUNS },
  );
  expect(several).toBeGreaterThan(RUNS / 10);
});

/** With the cluster to itself, the job would get a reservation. */
function blocksOthers(at: SchedulingInput, plan: Plan, job: QueuedJob): boolean {
  return schedule(alone(at, plan, job)).reservations.length > 0;
}

/** The cluster after the plan's starts and evictions for others, and the one job that waits. */
function alone(at: SchedulingInput, plan: Plan, job: QueuedJob): SchedulingInput {
  const preemptions = plan.preemptions.filter(({ forEntry }) => !isSameEntry(forEntry, job.entry));
  const after = advance(at, { ...plan, preemptions }, at.nowMs);
  return { ...after, queue: [{ ...job, reservedStartMs: undefined, reservationRank: undefined }] };
}

it("reservations: an earlier job on other nodes makes none wait for an eviction", () => {
  let evicting = 0;
  fc.assert(
    fc.property(inputs, (at) => {
      const plan = schedule(at);
      const { usable, view } = emptied(at);
      const taken = new Uint8Array(view.roster.slots.length);
      const promised = new Map(
        plan.reservations.map((each) => [entryKey(each.entry), each.startAtMs]),
      );
      if (promised.size === MAX_PROMISES) return;
      for (const job of waiting(at, plan)) {
        const mayUse = usable(job);
        const isApart = !meet(mayUse, taken);
        const own = mayUse.map((one, node) => (taken[node] === 0 ? one : 0));
        const hosts = at.snapshot.nodes.filter((_, node) => own[node] === 1).map(({ id }) => id);
        const there = pinnedTo(job, hosts);
        const best = schedule(alone(at, plan, there));
        const start = promised.get(entryKey(job.entry)) ?? Number.POSITIVE_INFINITY;
        const bestMs = best.reservations[0]?.startAtMs;
        if (bestMs !== undefined && !findsRoomBeside(at, plan, job, bestMs)) {
          expect(start).toBeLessThanOrEqual(bestMs);
          if (best.preemptions.length > 0 && promised.size > 1) evicting++;
        }
        if (isApart && !promised.has(entryKey(job.entry))) continue;
        mayUse.forEach((one, node) => {
          if (one === 1) taken[node] = 1;
        });
      }
    }),
    { numRuns: RUNS },
  );
  expect(evicting).toBeGreaterThan(RUNS / 10);
});

function pinnedTo(job: QueuedJob, hosts: readonly string[]): QueuedJob {
  const { nodeAffinity } = job.request;
  const here = { key: "host", operator: "in" as const, values: hosts };
  return { ...job, request: { ...job.request, nodeAffinity: [...nodeAffinity, here] } };
}

/** Whether it fits by then beside all earlier reservations, so that no job need be evicted. */
function findsRoomBeside(at: SchedulingInput, plan: Plan, job: QueuedJob, byMs: number): boolean {
  const { of, view } = emptied(at);
  // Later backfill may still take that room, and then it may evict in the next cycle.
  const starts = plan.starts.filter(({ backfilled }) => !backfilled);
  const after = advance(at, { ...plan, starts }, at.nowMs);
  const then = Ledger.ofCapacity(view.roster, at.settings.overcommitRatio);
  const own = new Set(
    plan.preemptions.filter((each) => isSameEntry(each.forEntry, job.entry)).map(victim),
  );
  const turn = plan.reservations.findIndex(({ entry }) => isSameEntry(entry, job.entry));
  const before = plan.reservations.slice(0, turn === -1 ? undefined : turn);
  for (const each of after.snapshot.running) {
    const isEvicted = each.evicting !== undefined && !own.has(each.id);
    if ((isEvicted ? each.evicting!.byMs : endMs(each)) > byMs) take(then, each);
  }
  for (const { entry, placements } of before) {
    take(then, { ...at.queue.find((job) => isSameEntry(job.entry, entry))!, placements });
  }
  return gangFits(then, of(job));

  function take(ledger: Ledger, holder: Pick<QueuedJob, "request"> & Pick<Placed, "placements">) {
    for (const { nodeId, devices } of holder.placements) {
      const position = view.roster.position(nodeId)!;
      ledger.take(position, view.shapes.of(holder.request), devices);
    }
  }
}

type Placed = Plan["reservations"][number];
const victim = ({ victimId }: Plan["preemptions"][number]) => victimId;

it("no eviction is in vain: without any one victim the start would be later", () => {
  fc.assert(
    fc.property(inputs, (at) => {
      const plan = schedule(at);
      const { of, view } = emptied(at);
      const started = advance(at, { ...plan, preemptions: [], reservations: [] }, at.nowMs);
      for (const { victimId, forEntry } of plan.preemptions) {
        const { startAtMs, placements } = plan.reservations.find((r) =>
          isSameEntry(r.entry, forEntry),
        )!;
        const stays = plan.preemptions.filter((each) => each.victimId !== victimId).map(victim);
        const then = Ledger.ofCapacity(view.roster, at.settings.overcommitRatio);
        for (const each of started.snapshot.running) {
          const byMs = stays.includes(each.id) ? startAtMs : (each.evicting?.byMs ?? endMs(each));
          if (byMs <= startAtMs) continue;
          for (const { nodeId, devices } of each.placements) {
            const position = view.roster.position(nodeId)!;
            then.take(position, view.shapes.of(each.request), devices);
          }
        }
        const hosts = [...new Set(placements.map(({ nodeId }) => nodeId))];
        const job = pinnedTo(at.queue.find((job) => isSameEntry(job.entry, forEntry))!, hosts);
        expect(gangFits(then, of(job))).toBe(false);
      }
    }),
    { numRuns: RUNS },
  );
});

it("a reservation is never lost to a later job: it only moves forward", () => {
  const steps = fc.array(fc.nat(), { minLength: 10, maxLength: 10 });
  let kept = 0;
  fc.assert(
    fc.property(inputs, queues, steps, (first, late, ends) => {
      let at = first;
      const promises = new Map<string, number>();
      for (const [step, end] of ends.entries()) {
        const plan = schedule(at);
        for (const { entry } of plan.starts) {
          const promised = promises.get(entryKey(entry));
          if (promised === undefined) continue;
          expect(at.nowMs).toBeLessThanOrEqual(promised);
          kept++;
        }
        for (const { entry, startAtMs } of plan.reservations) {
          expect(startAtMs).toBeLessThanOrEqual(
            promises.get(entryKey(entry)) ?? Number.POSITIVE_INFINITY,
          );
        }
        const started = new Set(plan.starts.map(({ entry }) => entryKey(entry)));
        const now = new Map(
          plan.reservations.map((each) => [entryKey(each.entry), each.startAtMs]),
        );
        for (const id of promises.keys()) expect(now.has(id) || started.has(id)).toBe(true);
        promises.clear();
        for (const [id, startAtMs] of now) promises.set(id, startAtMs);
        at = withoutEvicted(at, advance(at, plan, nextChangeMs(at, plan)));
        at = endedEarly(at, end);
        if (step === 0) at = { ...at, queue: [...at.queue, ...lowest(late, at.nowMs)] };
      }
    }),
    { numRuns: RUNS },
  );
  expect(kept).toBeGreaterThan(20);
});

/** Jobs of the lowest level, though their project holds nothing and they are older. */
function lowest(jobs: readonly QueuedJob[], nowMs: number): QueuedJob[] {
  return named("z", jobs, nowMs).map((job) => ({
    ...job,
    project: "p9",
    kind: "training",
    qosLevel: "best_effort",
    priority: -9,
    submittedAtMs: 0,
  }));
}

/** Without the evicted jobs, which would precede reserved ones of a lower level. */
function withoutEvicted(before: SchedulingInput, after: SchedulingInput): SchedulingInput {
  const known = new Set(before.queue.map(({ entry }) => entryKey(entry)));
  return { ...after, queue: after.queue.filter(({ entry }) => known.has(entryKey(entry))) };
}

/** At times a job ends before its bound. */
function endedEarly(at: SchedulingInput, drawn: number): SchedulingInput {
  const { running } = at.snapshot;
  const gone = drawn % 3 === 0 ? drawn % Math.max(1, running.length) : -1;
  const left = running.filter((_, n) => n !== gone);
  return { ...at, snapshot: { ...at.snapshot, running: left } };
}

it("reservations: no later job precedes a ranked one that may use the same", () => {
  const oneLevel = (jobs: readonly QueuedJob[]) =>
    jobs.map((job) => ({ ...job, kind: "training", qosLevel: "standard", priority: 0 }));
  fc.assert(
    fc.property(inputs, queues, (given, late) => {
      const first = { ...given, queue: oneLevel(given.queue) as QueuedJob[] };
      const plan = schedule(first);
      const next = advance(first, plan, first.nowMs + 1_000);
      const newcomers = (oneLevel(named("z", late, 0)) as QueuedJob[]).map((job) => ({
        ...job,
        project: "p9",
      }));
      const again = schedule({ ...next, queue: [...newcomers, ...next.queue] });
      const stayed = plan.ranked
        .map(entryKey)
        .filter((id) => next.queue.some((job) => entryKey(job.entry) === id));
      const still = again.ranked.map(entryKey).filter((id) => stayed.includes(id));
      // In the same order, and before all that arrived.
      expect(still).toEqual(stayed.filter((id) => still.includes(id)));
      const came = again.ranked.map(entryKey).findIndex((id) => !stayed.includes(id));
      const last = again.ranked.map(entryKey).findLastIndex((id) => stayed.includes(id));
      if (came !== -1 && last !== -1) expect(last).toBeLessThan(came);
    }),
    { numRuns: RUNS },
  );
});

it("reservations: levels precede ranks", () => {
  fc.assert(
    fc.property(inputs, (at) => {
      const plan = schedule(at);
      const levels = plan.ranked.map((entry) =>
        levelOf(at.queue.find((job) => isSameEntry(job.entry, entry))!),
      );
      expect(levels).toEqual([...levels].sort((a, b) => b - a));
    }),
    { numRuns: RUNS },
  );
});
