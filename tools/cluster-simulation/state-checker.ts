import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import { type JobRecord, type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";
import type { ReplicatedControl } from "@heddle/control/replicated-control";
import type { Checker } from "./checker.ts";

const DEVICE_MILLI = 1_000;
/** In these states a job has all its tasks or none. */
const WHOLE: ReadonlySet<string> = new Set(["scheduled", "starting", "running"]);

/** What must hold in the masters' state after each entry of the log. */
export class StateChecker {
  readonly #checker: Checker;
  readonly #accepted: ReadonlySet<string>;
  #index = 0;
  /** The text of the event at each position. */
  readonly #events = new Map<number, string>();
  /** Keyed by job: its attempt, and its end. */
  readonly #seen = new Map<
    string,
    { readonly attempt: number; readonly end: string | undefined }
  >();

  constructor(checker: Checker, accepted: ReadonlySet<string>) {
    this.#checker = checker;
    this.#accepted = accepted;
  }

  /** A master has applied an entry; each index is checked once, at the first that applies it. */
  applied(control: ReplicatedControl): void {
    this.#checkEvents(control);
    if (control.index <= this.#index) return;
    this.#index = control.index;
    this.#checkEnded(control);
    this.#checkJobs(control);
    this.#checkAccounts(control);
  }

  /** Every master derives the same events, one at each position. */
  #checkEvents({ derived, eventCount, index }: ReplicatedControl): void {
    for (const [at, event] of derived.entries()) {
      const position = eventCount - derived.length + at;
      const text = `${index} ${event.type} ${event.subject}`;
      const known = this.#events.get(position);
      this.#checker.demand(
        known === undefined || known === text,
        "every master derives the same events",
        () => `at ${position}: ${text}, where another has ${known}`,
      );
      this.#events.set(position, text);
      this.#checker.demand(
        position === 0 || this.#events.has(position - 1),
        "no position of an event is missing",
        () => `${position} follows nothing`,
      );
    }
  }

  /** Fails where a node was fenced before its lease had ended. */
  #checkEnded({ state }: ReplicatedControl): void {
    for (const { key, id } of this.#checker.runningTasks) {
      const task = state.tasks.get(taskKey(id.jobId, id.attempt, id.rank));
      const isSame = (task?.incarnation ?? 0) === id.incarnation;
      this.#checker.demand(
        task?.phase !== "exited" || !isSame,
        "no task runs when it counts as ended",
        () => key,
      );
    }
  }

  #checkJobs({ state }: ReplicatedControl): void {
    for (const id of this.#accepted) {
      this.#checker.demand(state.jobs.has(id), "an accepted job is never lost", () => id);
    }
    const tasks = Map.groupBy(state.tasks.values(), ({ jobId }) => jobId);
    for (const job of state.jobs.values()) {
      this.#checkJob(job, tasks.get(job.id) ?? []);
      const seen = this.#seen.get(job.id);
      this.#checker.demand(
        job.attempt >= (seen?.attempt ?? 0),
        "attempts only grow",
        () => `${job.id}: ${job.attempt} after ${seen?.attempt}`,
      );
      this.#checker.demand(
        seen?.end === undefined || seen.end === job.state,
        "nothing leaves a final state",
        () => `${job.id}: ${job.state} after ${seen?.end}`,
      );
      const end = isTerminal(job.state) ? job.state : undefined;
      this.#seen.set(job.id, { attempt: job.attempt, end });
    }
  }

  #checkJob(job: JobRecord, tasks: readonly TaskRecord[]): void {
    const own = tasks.filter(({ attempt }) => attempt === job.attempt);
    const live = own.filter(({ phase }) => phase !== "exited");
    this.#checker.demand(
      live.length === job.liveTasks,
      "a job counts its live tasks",
      () => `${job.id}: ${job.liveTasks} of ${live.length}`,
    );
    this.#checker.demand(
      !WHOLE.has(job.state) || own.length === job.tasks,
      "a gang starts as a whole",
      () => `${job.id} is ${job.state} with ${own.length} of ${job.tasks} tasks`,
    );
  }

  #checkAccounts({ state }: ReplicatedControl): void {
    const held = new Map<string, number>();
    const devices = new Map<string, number>();
    for (const task of state.tasks.values()) {
      if (task.phase === "exited") continue;
      const project = state.jobs.get(task.jobId)?.project ?? "";
      held.set(project, (held.get(project) ?? 0) + task.devices.length * task.gpuMilli);
      for (const device of task.devices) {
        const key = `device ${device} of ${task.nodeId}`;
        const milli = (devices.get(key) ?? 0) + task.gpuMilli;
        devices.set(key, milli);
        this.#checker.demand(
          milli <= DEVICE_MILLI,
          "no device is planned twice",
          () => `${key} has ${milli} thousandths`,
        );
      }
    }
    for (const { name, usage, quota } of state.projects.values()) {
      const milli = held.get(name) ?? 0;
      this.#checker.demand(
        usage.heldGpuMilli === milli,
        "usage is what tasks hold",
        () => `${name}: ${usage.heldGpuMilli}, and its tasks hold ${milli}`,
      );
      this.#checker.demand(
        milli <= (quota.gpuMilli ?? Number.POSITIVE_INFINITY),
        "no project passes its quota",
        () => `${name}: ${milli} of ${quota.gpuMilli}`,
      );
    }
  }
}
