import { availableParallelism } from "node:os";
import { FEATURE_LABEL, INPUTS_FEATURE } from "@heddle/contracts/api/pipelines/job-inputs";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import { defaultMaxTasks } from "@heddle/contracts/task-places";
import { STAGE_BUILD } from "@heddle/engines/shards/ring/stage-frame";
import { NodeAgent, type ReportedState } from "@heddle/node-agent/node-agent";
import { featuresWithStages } from "@heddle/rpc/engine-features";
import { encodeReplica } from "@heddle/rpc/node-codec";
import { Inject, Injectable, type OnModuleInit } from "@nestjs/common";
import { WORKER_OPTIONS, type WorkerOptions } from "./config/worker-options.ts";
import { ReplicaSet } from "./inference/replica-set.ts";
import { TaskSessions } from "./tasks/task-sessions.ts";
import { TaskTable } from "./tasks/task-table.ts";
import { WorkerExecutors } from "./tasks/worker-executors.ts";

/** The worker's part of registrations and heartbeats. */
@Injectable()
export class WorkerState implements ReportedState, OnModuleInit {
  readonly #node: NodeAgent;
  readonly #options: WorkerOptions;
  readonly #replicas: ReplicaSet;
  readonly #executors: WorkerExecutors;
  readonly #tasks: TaskTable;
  readonly #sessions: TaskSessions;

  constructor(
    @Inject(NodeAgent) node: NodeAgent,
    @Inject(WORKER_OPTIONS) options: WorkerOptions,
    @Inject(ReplicaSet) replicas: ReplicaSet,
    @Inject(WorkerExecutors) executors: WorkerExecutors,
    @Inject(TaskTable) tasks: TaskTable,
    @Inject(TaskSessions) sessions: TaskSessions,
  ) {
    this.#node = node;
    this.#options = options;
    this.#replicas = replicas;
    this.#executors = executors;
    this.#tasks = tasks;
    this.#sessions = sessions;
  }

  /** Tasks come once what runs them works, after what earlier ones have left there. */
  onModuleInit(): void {
    this.#executors.onOpen(() => {
      void this.#tasks.sweep().finally(() => this.#node.registerAgain());
    });
    this.#tasks.disk.onChange(() => this.#node.registerAgain());
    this.#onGpuFault();
  }

  /** A faulty GPU ends the tasks that hold it, and is reported to the masters at once. */
  #onGpuFault(): void {
    const { machine, options } = this.#node;
    machine.onFault((gpu) => {
      const { index, simulated, fault } = gpu;
      options.log.error({ gpu: index, simulated, fault }, "a GPU is unhealthy");
      this.#tasks.onGpuFault(index ?? -1, fault ?? "");
      this.#node.report();
    });
  }

  registration(): Partial<Register> {
    const { labels, taints, rack, fabric, maxTasks } = this.#options;
    const { names, algorithms, environments, schemas, isolation } = this.#executors;
    return {
      labels: {
        ...labels,
        ...this.#executors.labels,
        [`${FEATURE_LABEL}${INPUTS_FEATURE}`]: "true",
      },
      taints: [...taints],
      rack,
      fabric,
      executors: this.#fault === "" ? names : [],
      algorithms,
      environments,
      algorithmSchemas: schemas,
      taskIsolation: isolation,
      maxTasks: maxTasks ?? defaultMaxTasks(availableParallelism()),
      maxTasksChosen: maxTasks !== undefined,
      engineFeatures: featuresWithStages(STAGE_BUILD),
    };
  }

  heartbeat(master: string): Heartbeat {
    return {
      ...this.#node.machine.usage(),
      replicas: this.#replicas.statuses(master).map(encodeReplica),
      tasks: this.#tasks.progress(),
      refusesLeader: this.#sessions.refusal,
      executorFault: this.#fault,
    };
  }

  /** Why no task can run here now; empty where they can. */
  get #fault(): string {
    return this.#executors.fault || this.#tasks.disk.reason;
  }
}
