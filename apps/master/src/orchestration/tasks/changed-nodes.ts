import type { IndexWatcher, JobIndex } from "@heddle/control/jobs/index/job-index";
import { taskKey } from "@heddle/control/jobs/records/records";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

/** Changed jobs beyond which all nodes count as changed. */
const MAX_CHANGED = 200_000;

/** Nodes that were named, or of which the state or a task's job changed, since the last read. */
export class ChangedNodes implements IndexWatcher {
  readonly #control: Pick<ControlPlane, "state" | "jobs">;
  readonly #jobs = new Set<string>();
  readonly #nodes = new Set<string>();
  /** The watched index; undefined where all nodes count as changed. */
  #index: JobIndex | undefined;

  constructor(control: Pick<ControlPlane, "state" | "jobs">) {
    this.#control = control;
  }

  add(node: string): void {
    this.#nodes.add(node);
  }

  jobChanged(id: string): void {
    this.#jobs.add(id);
  }

  nodeChanged(id: string): void {
    this.#nodes.add(id);
  }

  nodeDropped(id: string): void {
    this.#nodes.add(id);
  }

  clear(): void {
    this.#jobs.clear();
    this.#nodes.clear();
  }

  /** The changed nodes, from now on unchanged; undefined for all. */
  take(): ReadonlySet<string> | undefined {
    const { state, jobs } = this.#control;
    const isAll = this.#index !== jobs || this.#jobs.size > MAX_CHANGED;
    // A restore brings another index.
    if (this.#index !== jobs) jobs.watch(this);
    this.#index = jobs;
    const nodes = new Set(this.#nodes);
    for (const id of isAll ? [] : this.#jobs) {
      const { attempt = 0, tasks = 0 } = state.jobs.get(id) ?? {};
      for (let rank = 0; rank < tasks; rank++) {
        const task = state.tasks.get(taskKey(id, attempt, rank));
        if (task) nodes.add(task.nodeId);
      }
    }
    this.clear();
    return isAll ? undefined : nodes;
  }
}
