import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import { PerMaster } from "@heddle/node-agent/masters/per-master";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import { Inject, Injectable, type OnModuleDestroy, type OnModuleInit } from "@nestjs/common";
import { OUTPUT_STREAMS, type StreamName, TASK_STREAMS } from "../records/task-directory.ts";
import { type LogBook, LogShipper, type ReadableLog, type ShippedLog } from "./log-shipper.ts";
import { LOGGED_TASKS, type LoggedTask, type LoggedTasks } from "./logged-tasks.ts";
import type { TaskStreams } from "./task-streams.ts";

/** Ships the logs of all tasks to all masters, and releases those that a majority has. */
@Injectable()
export class LogShipping implements LogBook, OnModuleInit, OnModuleDestroy {
  readonly #node: NodeAgent;
  readonly #tasks: LoggedTasks;
  /** Masters that have the whole of a log on disk, by the log. */
  readonly #shipped = new WeakMap<ReadableLog, Set<string>>();
  /** The durable end of each log at each master, likewise. */
  readonly #durable = new WeakMap<ReadableLog, Map<string, number>>();
  #shippers: PerMaster<LogShipper> | undefined;

  constructor(@Inject(NodeAgent) node: NodeAgent, @Inject(LOGGED_TASKS) tasks: LoggedTasks) {
    this.#node = node;
    this.#tasks = tasks;
  }

  onModuleInit(): void {
    const { credentials, nodeId, masters, options } = this.#node;
    const { log } = options;
    const shippers = new PerMaster(masters, (master) => {
      const whileRemoved = (signal: AbortSignal) => masters.whileRemoved(master, signal);
      return new LogShipper({ master, credentials, nodeId, whileRemoved, log }, this);
    });
    this.#shippers = shippers;
    this.#tasks.onChange((task, what) => {
      if (what === "progress") return;
      if ("streams" in task && what === "phase") this.#removeIfSafe(task);
      for (const shipper of shippers) shipper.wake();
    });
  }

  /** The tasks have ended before, and their last lines are with the masters that were reached. */
  async onModuleDestroy(): Promise<void> {
    await this.#shippers?.close();
  }

  logs(): ShippedLog[] {
    return this.#tasks.tasks().flatMap(({ plan, streams }) =>
      usedStreams(streams).map((stream) => {
        // A master that has left the group since may be one that was waited for.
        this.#reportShipped(streams, stream);
        const { id, logGrant: grant = "" } = plan;
        return { id, grant, stream, log: streams.logs[stream] };
      }),
    );
  }

  onDurable(master: string, id: TaskId__Output, stream: string, end: number): void {
    const streams = this.#tasks.find(id)?.streams;
    const name = TASK_STREAMS.find((each) => each === stream);
    if (!streams || !name) return;
    const log = streams.logs[name];
    const ends = this.#durable.get(log) ?? new Map<string, number>();
    this.#durable.set(log, ends.set(master, Math.max(end, ends.get(master) ?? 0)));
    this.#reportShipped(streams, name);
  }

  #reportShipped(streams: TaskStreams, name: StreamName): void {
    const ends = this.#durable.get(streams.logs[name]);
    if (!ends) return;
    const endAt = (addresses: readonly string[]) =>
      Math.max(0, ...addresses.map((each) => ends.get(each) ?? 0));
    const sorted = this.#node.masters.group.map(endAt).sort((a, b) => b - a);
    streams.onShipped(name, sorted[majorityOf(sorted) - 1] ?? 0);
  }

  onShipped(master: string, { id, log }: ShippedLog): void {
    const holders = this.#shipped.get(log) ?? new Set();
    this.#shipped.set(log, holders.add(master));
    const task = this.#tasks.find(id);
    if (task) this.#removeIfSafe(task);
  }

  /** The logs of a task stay here until a majority of the masters has them whole. */
  #removeIfSafe({ plan, streams }: LoggedTask): void {
    const { group } = this.#node.masters;
    const holders = (log: ReadableLog) => {
      const has = (address: string) => this.#shipped.get(log)?.has(address) ?? false;
      return group.filter((addresses) => addresses.some(has)).length;
    };
    const isMissing = (name: StreamName) => holders(streams.logs[name]) < majorityOf(group);
    if (usedStreams(streams).some(isMissing)) return;
    this.#tasks.onLogsShipped(plan.id).catch((error: unknown) => {
      const { log } = this.#node.options;
      log.warn({ error: String(error) }, "a task's logs could not be removed");
    });
  }
}

function majorityOf(group: readonly unknown[]): number {
  return Math.floor(group.length / 2) + 1;
}

/** Most tasks have no metrics: nothing of them is shipped. */
function usedStreams({ logs }: TaskStreams): readonly StreamName[] {
  return logs.metrics.end > 0 ? TASK_STREAMS : OUTPUT_STREAMS;
}
