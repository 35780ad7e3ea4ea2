import { isSameEntry } from "@heddle/scheduler/plan-entry";
import { schedule } from "@heddle/scheduler/schedule";
import type { ReplicatedControl } from "../../replicated-control.ts";
import { newestControl } from "../../testing/newest-control.ts";
import { nextDueMs } from "../commands/clock.ts";
import type { JobsCommand, TaskReportEntry } from "../records/commands.ts";
import type { NodeRecord } from "../records/records.ts";
import { schedulingInput } from "../scheduling/scheduling-input.ts";
import { jobId, jobSpec, nodeOffer } from "./specs.ts";

/** A cluster whose commands are one second apart. */
export class PlannedCluster {
  readonly control: ReplicatedControl;
  atMs = 0;

  constructor(control = newestControl()) {
    this.control = control;
  }

  do(command: Record<string, unknown>) {
    this.atMs += 1_000;
    const made = { atMs: this.atMs, ...command } as unknown as JobsCommand;
    return this.control.apply({ type: "control", command: made }, this.control.index + 1);
  }

  /** Advances the time, with a leader that fires due timers and fences nodes when expected. */
  pass(ms: number): void {
    const endMs = this.atMs + ms;
    for (;;) {
      const { fencedAtMs: fenceMs = Number.POSITIVE_INFINITY } = this.#nextFenced() ?? {};
      const timerMs = nextDueMs(this.control.state, this.control.jobs) ?? Number.POSITIVE_INFINITY;
      const dueMs = Math.min(fenceMs, timerMs);
      if (dueMs > endMs) break;
      this.atMs = Math.max(this.atMs, dueMs - 1_000);
      if (fenceMs <= timerMs) this.fence();
      else this.do({ type: "clock.tick" });
    }
    this.atMs = endMs;
  }

  #nextFenced(): NodeRecord | undefined {
    const lost = [...this.control.state.nodes.values()].filter(
      ({ lostIndex }) => lostIndex !== undefined,
    );
    return lost.sort((a, b) => (a.fencedAtMs ?? 0) - (b.fencedAtMs ?? 0))[0];
  }

  /** The leases of the lost node that is expected first have expired. */
  fence() {
    const { offer, lostIndex = 0 } = this.#nextFenced() ?? {};
    return this.do({ type: "node.fenced", losses: [{ nodeId: offer?.id ?? "", lostIndex }] });
  }

  join(id: string, change: Record<string, unknown> = {}) {
    return this.do({ type: "node.join", offer: nodeOffer(id, change) });
  }

  submit(n: number, change: Record<string, unknown> = {}) {
    const spec = jobSpec({ name: `n${n}`, ...change });
    return this.do({ type: "job.submit", jobId: jobId(n), spec });
  }

  view() {
    const at = { index: this.control.index, nowMs: this.atMs };
    return schedulingInput(this.control.state, this.control.jobs, at);
  }

  /** Runs the scheduler and commits its plan. */
  plan() {
    const input = this.view();
    const plan = schedule(input);
    const reply = this.do({
      type: "plan.commit",
      basedOnIndex: plan.basedOnIndex,
      overcommitRatio: 1,
      limits: { jobTimeoutMs: 86_400_000, maxConcurrentJobs: 1_000 },
      acknowledgeMs: 10_000,
      admitted: input.queue.flatMap(({ entry }) => (entry.kind === "job" ? [entry.jobId] : [])),
      unsatisfiable: [],
      starts: plan.starts,
      preemptions: plan.preemptions,
      expired: plan.expired,
      ranked: plan.ranked.flatMap((ranked) => {
        if (ranked.kind === "replica") return [];
        const { jobId: id } = ranked;
        const reservation = plan.reservations.find(({ entry }) => isSameEntry(entry, ranked));
        return [{ jobId: id, startAtMs: reservation?.startAtMs }];
      }),
    });
    return { plan, reply };
  }

  /** Reports every task of the job, on its node, in this phase. */
  report(n: number, phase: TaskReportEntry["phase"], exit?: TaskReportEntry["exit"]) {
    for (const task of [...this.control.state.tasks.values()]) {
      const { jobId: id, attempt, rank, nodeId } = task;
      if (id !== jobId(n) || task.phase === "lost") continue;
      const reports = [{ jobId: id, attempt, rank, phase, exit }];
      this.do({ type: "tasks.report", nodeId, reports });
    }
  }

  run(n: number) {
    this.plan();
    this.report(n, "leased");
    this.report(n, "running");
  }

  job(n: number) {
    return this.control.state.jobs.get(jobId(n))!;
  }
}
