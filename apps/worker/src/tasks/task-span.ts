import type { TaskStatus } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { JOB_TRACE, jobTraceOf } from "@heddle/observability/tracing/job-trace";
import type { OpenSpan } from "@heddle/observability/tracing/span";
import { traceParentOf } from "@heddle/observability/tracing/trace-context";
import { traceFields, tracing } from "@heddle/observability/tracing/tracing";
import type { TaskPlan } from "../records/task-plan.ts";

/** The span of a task on this worker, from its lease to its end, within its job's. */
export class TaskSpan {
  readonly #span: OpenSpan | undefined;

  constructor({ id, spec, devices }: TaskPlan) {
    const trace = jobTraceOf(id.jobId, spec.environment);
    this.#span =
      trace &&
      tracing()?.start({
        name: `task ${spec.jobName}`,
        kind: "consumer",
        parent: trace.job,
        attributes: {
          "heddle.job.id": id.jobId,
          "heddle.task.attempt": id.attempt,
          "heddle.task.rank": id.rank,
          "heddle.task.executor": spec.executor,
          "heddle.task.gpus": devices.length,
        },
      });
  }

  /** For log lines. */
  get fields(): Record<string, string> {
    return traceFields(this.#span);
  }

  /** What the task's own spans are within. */
  get environment(): Record<string, string> {
    return this.#span ? { [JOB_TRACE]: traceParentOf(this.#span.context) } : {};
  }

  onPhase({ phase, exit }: TaskStatus): void {
    if (phase === "exited") {
      this.#span?.set({ "heddle.task.exit_code": exit?.exitCode ?? undefined });
      this.end(exit?.reason || undefined);
    } else this.#span?.event(String(phase));
  }

  end(fault: string | undefined): void {
    this.#span?.end(fault);
  }
}
