import type { IndexWatcher, JobIndex } from "@heddle/control/jobs/index/job-index";
import { taskKey } from "@heddle/control/jobs/records/records";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { NodeTasks, type TaskKeys } from "./node-tasks.ts";
import { statusKey } from "./task-link.ts";

/** Changed jobs beyond which all nodes count as changed. */
const MAX_CHANGED = 200_000;

/** Nodes and their tasks that were named, or whose job changed, since the last read. */
export class ChangedNodes implements IndexWatcher {
  readonly #control: Pick<ControlPlane, "state" | "jobs">;
  readonly #jobs = new Set<string>();
  readonly #tasks = new NodeTasks();
  /** The watched index; undefined where all nodes count as changed. */
  #index: JobIndex | undefined;

  constructor(control: Pick<ControlPlane, "state" | "jobs">) {
    this.#control = control;
  }

  add(node: string, keys: TaskKeys = "all"): void {
    this.#tasks.add(node, keys);
  }

  addTask(node: string, key: string): void {
    this.#tasks.addOne(node, key);
  }

  jobChanged(id: string): void {
    this.#jobs.add(id);
  }

  nodeChanged(id: string): void {
    this.add(id);
  }

  nodeDropped(id: string): void {
    this.add(id);
  }

  clear(): void {
    this.#jobs.clear();
    this.#tasks.takeAll();
  }

  /** The changed nodes with their changed tasks, from now on unchanged; undefined for all. */
  take(): ReadonlyMap<string, TaskKeys> | undefined {
    const { state, jobs } = this.#control;
    const isAll = this.#index !== jobs || this.#jobs.size > MAX_CHANGED;
    // A restore brings another index.
    if (this.#index !== jobs) jobs.watch(this);
    this.#index = jobs;
    for (const id of isAll ? [] : this.#jobs) {
      const { attempt = 0, tasks = 0 } = state.jobs.get(id) ?? {};
      for (let rank = 0; rank < tasks; rank++) {
        const task = state.tasks.get(taskKey(id, attempt, rank));
        if (task) this.addTask(task.nodeId, statusKey(task));
      }
    }
    this.#jobs.clear();
    const changed = this.#tasks.takeAll();
    return isAll ? undefined : changed;
  }
}
