import { setTimeout as delay } from "node:timers/promises";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import { Inject, Module, type OnModuleDestroy } from "@nestjs/common";
import { LogsModule } from "../logs/logs.module.ts";
import { LeaseKeeper } from "./leases/lease-keeper.ts";
import { LeasesModule } from "./leases/leases.module.ts";
import { TASK_NODE, type TaskNode } from "./task-node.ts";
import { TaskSessions } from "./task-sessions.ts";
import { TaskTableModule } from "./task-table.module.ts";
import { TaskTable } from "./task-table.ts";
import { TasksController } from "./tasks.controller.ts";

/** The grace of tasks where the caller that ends this process does not wait. */
const MAX_TASK_GRACE_MS = 3_000;
/** How long a worker that ends waits until the masters know its tasks' ends. */
const MAX_FINAL_REPORT_MS = 1_500;

/** The leader's commands for this worker's tasks, and the tasks' end with the worker. */
@Module({
  imports: [LeasesModule, TaskTableModule, LogsModule],
  controllers: [TasksController],
  providers: [
    {
      provide: TaskSessions,
      inject: [TaskTable, LeaseKeeper, TASK_NODE],
      useFactory: (table: TaskTable, lease: LeaseKeeper, { log }: TaskNode) =>
        new TaskSessions(table, lease, log),
    },
  ],
  exports: [TaskSessions],
})
export class TaskSessionsModule implements OnModuleDestroy {
  readonly #table: TaskTable;
  readonly #sessions: TaskSessions;
  readonly #node: NodeAgent;

  constructor(
    @Inject(TaskTable) table: TaskTable,
    @Inject(TaskSessions) sessions: TaskSessions,
    @Inject(NodeAgent) node: NodeAgent,
  ) {
    this.#table = table;
    this.#sessions = sessions;
    this.#node = node;
  }

  /** Tasks end first, while the masters take reports and the rest of the logs. */
  async onModuleDestroy(): Promise<void> {
    await this.#table.endAll(Math.min(this.#node.drainMs, MAX_TASK_GRACE_MS));
    await this.#reported();
    this.#sessions.close();
  }

  /**
   * Resolves when the masters have every task's end and log, or soon where they are unreachable.
   */
  async #reported(): Promise<void> {
    const end = performance.now() + MAX_FINAL_REPORT_MS;
    const isDone = () => this.#table.statuses().length === 0 && this.#table.tasks().length === 0;
    while (this.#sessions.isOpen && !isDone() && performance.now() < end) await delay(20);
  }
}
