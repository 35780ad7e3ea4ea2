import type {
  JobFailureRecord,
  JobRecord,
  ProgressRecord,
  TaskExitRecord,
  TaskRecord,
} from "./records.ts";

/** The longest text in a record of a state that has no room for more. */
const MAX_TEXT = 256;

/** The task without details; with `least`, also without the list of its artifacts. */
export function fittedTask(task: TaskRecord, kept: "artifacts" | "least"): TaskRecord {
  const { exit } = task;
  if (!exit) return task;
  const { lastLines: _, artifacts, ...rest } = exit;
  const brief = briefly(rest);
  if (!artifacts) return { ...task, exit: brief };
  if (kept === "artifacts") return { ...task, exit: { ...brief, artifacts } };
  return { ...task, exit: { ...brief, message: unlisted(artifacts.length) } };
}

/** The job without details. */
export function fittedJob(job: JobRecord): JobRecord {
  const { failure, progress, model } = job;
  if (!failure && !progress && !model) return job;
  return {
    ...job,
    failure: failure && briefFailure(failure),
    progress: progress && withoutMetrics(progress),
    model: model?.fault === undefined ? model : { ...model, fault: cut(model.fault) },
  };
}

function withoutMetrics({ metrics: _, message: __, ...figures }: ProgressRecord): ProgressRecord {
  return figures;
}

function briefFailure({ lastLines: _, ...failure }: JobFailureRecord): JobFailureRecord {
  return { ...failure, message: cut(failure.message) };
}

function briefly(exit: TaskExitRecord): TaskExitRecord {
  return exit.message === undefined ? exit : { ...exit, message: cut(exit.message) };
}

function unlisted(artifacts: number): string {
  return `its ${artifacts} artifacts are not listed: the masters' state is full; remove jobs, or raise the cluster setting state_mib`;
}

function cut(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT - 1)}…`;
}
