import { availableParallelism } from "node:os";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import { defaultMaxTasks } from "@heddle/contracts/task-places";
import { NodeAgent, type ReportedState } from "@heddle/node-agent/node-agent";
import type { WorkerOffer } from "@heddle/node-agent/offer-flags";
import { encodeReplica } from "@heddle/rpc/node-codec";
import { Inject, Injectable, type OnModuleInit } from "@nestjs/common";
import { ReplicaSet } from "./inference/replica-set.ts";
import { TaskService } from "./tasks/task-service.ts";

/** The provider's token of what the operator offers of the node. */
export const WORKER_OFFER = Symbol("WorkerOffer");

/** The worker's part of registrations and heartbeats. */
@Injectable()
export class WorkerState implements ReportedState, OnModuleInit {
  readonly #node: NodeAgent;
  readonly #offer: WorkerOffer;
  readonly #replicas: ReplicaSet;
  readonly #tasks: TaskService;

  constructor(
    @Inject(NodeAgent) node: NodeAgent,
    @Inject(WORKER_OFFER) offer: WorkerOffer,
    @Inject(ReplicaSet) replicas: ReplicaSet,
    @Inject(TaskService) tasks: TaskService,
  ) {
    this.#node = node;
    this.#offer = offer;
    this.#replicas = replicas;
    this.#tasks = tasks;
  }

  /** A faulty GPU ends the tasks that hold it, and is reported to the masters at once. */
  onModuleInit(): void {
    const { machine, options } = this.#node;
    machine.onFault((gpu) => {
      const { index, simulated, fault } = gpu;
      options.log.error({ gpu: index, simulated, fault }, "a GPU is sick");
      this.#tasks.onGpuFault(gpu);
      this.#node.report();
    });
  }

  registration(): Partial<Register> {
    const { labels, taints, rack, fabric, maxTasks } = this.#offer;
    const { executors, algorithms, environments, schemas, isolation } = this.#tasks;
    return {
      labels: { ...labels },
      taints: [...taints],
      rack,
      fabric,
      executors,
      algorithms,
      environments,
      algorithmSchemas: schemas,
      taskIsolation: isolation,
      maxTasks: maxTasks ?? defaultMaxTasks(availableParallelism()),
      maxTasksChosen: maxTasks !== undefined,
    };
  }

  heartbeat(master: string): Heartbeat {
    return {
      ...this.#node.machine.usage(),
      replicas: this.#replicas.statuses(master).map(encodeReplica),
      tasks: this.#tasks.progress(),
      refusesLeader: this.#tasks.refusal,
    };
  }
}
