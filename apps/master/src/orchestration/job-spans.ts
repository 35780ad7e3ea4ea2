import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { jobTraceOf } from "@heddle/observability/tracing/job-trace";
import { tracing } from "@heddle/observability/tracing/tracing";
import { Inject, type OnApplicationBootstrap } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { LeaderLoops } from "./leader-loops.ts";

/** Ended jobs are sent together. */
const PAUSE_MS = 200;
/** A job that ended longer ago was another leader's. */
const RECENT_MS = 5_000;

/** The leader sends the span of each job that ends; nothing runs where traces are off. */
export class JobSpans implements OnApplicationBootstrap {
  readonly #loops: LeaderLoops;
  readonly #control: ControlPlane;

  constructor(
    @Inject(LeaderLoops) loops: LeaderLoops,
    @Inject(CONTROL_PLANE) control: ControlPlane,
  ) {
    this.#loops = loops;
    this.#control = control;
  }

  onApplicationBootstrap(): void {
    if (!tracing()) return;
    let seen = this.#control.jobs.events.last;
    this.#loops.run({
      name: "the spans of jobs",
      pauseMs: PAUSE_MS,
      concerns: () => true,
      step: async () => {
        const { events } = this.#control.jobs;
        const oldestMs = Date.now() - RECENT_MS;
        for (const event of events.after(seen)) {
          seen = event;
          const { what, atMs } = event;
          if (what.type !== "job" || !isTerminal(what.state) || atMs < oldestMs) continue;
          const job = this.#control.state.jobs.get(what.jobId);
          if (job) this.#send(job);
        }
        return undefined;
      },
    });
  }

  #send(job: JobRecord): void {
    const { id, name, state, submittedAtMs, endedAtMs, failure } = job;
    const spec = this.#control.state.specs.get(id);
    const trace = jobTraceOf(id, spec?.environment_variables ?? {});
    if (!trace) return;
    const span = tracing()?.start({
      name: `job ${name}`,
      kind: "internal",
      parent: trace.parent,
      ids: trace.job,
      startMs: submittedAtMs,
      attributes: {
        "heddle.job.id": id,
        "heddle.job.state": state,
        "heddle.project": job.project,
        "heddle.queue": job.queue,
        "heddle.job.attempts": job.attempt,
      },
    });
    const failed = failure?.reason ?? "failed";
    span?.end(state === "failed" ? failed : undefined, endedAtMs);
  }
}
