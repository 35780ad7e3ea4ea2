import { AppError } from "@heddle/base/errors";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { WorkerOptions } from "../config/worker-options.ts";
import { BatchExecutor } from "./batch/batch-executor.ts";
import { ContainerExecutor } from "./containers/container-executor.ts";
import type { Executor } from "./executors/executor.ts";
import type { Isolation, IsolationLevel } from "./isolation/isolation.ts";
import type { OuterPlaces } from "./outer-places.ts";
import { PodExecutor } from "./pods/pod-executor.ts";
import { BlockExecutor } from "./processes/block-executor.ts";
import { CgroupBranch } from "./processes/cgroup.ts";
import { ProcessExecutor } from "./processes/process-executor.ts";
import { TrainingExecutor } from "./processes/training-executor.ts";
import type { TaskNode } from "./task-node.ts";
import { trainingPlugins } from "./worker-plugins.ts";

const NOT_ISOLATED =
  "run as this worker's user and could read its files and each other's: run the worker as a user of its own, and allow it with --task-isolation optional";

/** The executors that this worker has found, and what it reports of them to the masters. */
export class WorkerExecutors {
  readonly isolation: IsolationLevel;
  /** The branch of cgroups that holds all tasks; empty where there is none. */
  readonly cgroup: string;
  readonly #byName: ReadonlyMap<string, Executor>;
  readonly #outer: OuterPlaces;

  private constructor(
    isolation: IsolationLevel,
    cgroup: string,
    found: readonly Executor[],
    outer: OuterPlaces,
  ) {
    this.isolation = isolation;
    this.cgroup = cgroup;
    this.#outer = outer;
    this.#byName = new Map(found.map((executor) => [executor.name, executor]));
  }

  static async find(
    node: TaskNode,
    isolation: Isolation,
    options: WorkerOptions,
    outer: OuterPlaces,
    pluginSet: PluginSet,
  ): Promise<WorkerExecutors> {
    const { pods, batch } = outer;
    const { id, log } = node;
    const { isIsolationOptional } = options;
    if (pods) {
      // The worker's token may create Pods, so no process of a job runs beside it.
      const executor = await PodExecutor.find(pods, id, options.dataDirectory, log);
      return new WorkerExecutors("none", "", [executor], outer);
    }
    if (batch) {
      if (isIsolationOptional !== true) {
        throw new AppError("invalid_value", `tasks in ${batch.title} ${NOT_ISOLATED}`);
      }
      const executor = await BatchExecutor.find(batch, id, options.dataDirectory, log);
      return new WorkerExecutors("none", "", [executor], outer);
    }
    const plugins = trainingPlugins(pluginSet);
    const branch = CgroupBranch.open(id);
    log.info(CgroupBranch.words(branch), "how tasks are bounded");
    const processes = new ProcessExecutor(id, branch, isolation);
    const isAllowed = isolation.level !== "none" || isIsolationOptional === true;
    const found: Executor[] = isAllowed ? [processes] : [];
    const { socketRoots } = isolation;
    const [container, training] = await Promise.all([
      ContainerExecutor.find(id, log),
      isAllowed ? TrainingExecutor.find(processes, node, { plugins, socketRoots }) : undefined,
    ]);
    if (training) found.push(training);
    const blocks = isAllowed ? BlockExecutor.find(processes, pluginSet) : undefined;
    if (blocks) found.push(blocks);
    if (container) {
      log.info({ cli: container.cli }, "containers can be run");
      found.push(container);
    }
    return new WorkerExecutors(isolation.level, branch?.path ?? "", found, outer);
  }

  get(name: string): Executor | undefined {
    return this.#byName.get(name);
  }

  get all(): readonly Executor[] {
    return [...this.#byName.values()];
  }

  get names(): string[] {
    return [...this.#byName.keys()];
  }

  /** Why no task can run now; empty where they can. */
  get fault(): string {
    return this.#outer.fault;
  }

  /** Calls the listener once, when an executor that failed at the start works. */
  onOpen(listener: () => void): void {
    this.#outer.onOpen(listener);
  }

  /** Its training algorithms, and blocks of plugins, likewise. */
  get algorithms(): string[] {
    return this.all.flatMap(({ algorithms }) => algorithms ?? []);
  }

  /** The environments of their `ppo`. */
  get environments(): string[] {
    return this.all.flatMap(({ environments }) => environments ?? []);
  }

  /** Keyed by algorithm of a plugin: the JSON Schema of its config, as JSON. */
  get schemas(): Record<string, string> {
    return Object.assign({}, ...this.all.map(({ schemas = {} }) => schemas));
  }

  /** Where tasks find the worker's lease; empty where none looks for it. */
  get leaseFolder(): string {
    return this.all.find(({ leaseFolder }) => leaseFolder)?.leaseFolder ?? "";
  }

  /** Labels of the node that executors add. */
  get labels(): Readonly<Record<string, string>> {
    return Object.assign({}, ...this.all.map(({ labels = {} }) => labels));
  }

  /** The container CLI; empty where there is none. */
  get containerCli(): string {
    const containers = this.get("container");
    return containers instanceof ContainerExecutor ? containers.cli : "";
  }
}
