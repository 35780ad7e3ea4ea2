import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer, type Server } from "node:net";
import type { TaskPlan } from "../records/task-plan.ts";
import type { Executor } from "./executors/executor.ts";
import type { TaskNode } from "./task-node.ts";

/** A free port, held until the task whose rendezvous it is begins. */
export class PortReservation {
  readonly address: string;
  readonly #server: Server | undefined;

  private constructor(server: Server | undefined, address: string) {
    this.#server = server;
    this.address = address;
  }

  /** A task with a network of its own needs no port of this node. */
  static async forTask(
    plan: TaskPlan,
    { node, executor }: { readonly node: TaskNode; readonly executor: Executor },
  ): Promise<PortReservation> {
    const { host = node.host, port } = executor.taskAddress?.(plan) ?? {};
    if (port === undefined) return PortReservation.take(host);
    return new PortReservation(undefined, `${host}:${port}`);
  }

  /** `host` is this node's name for the others; the task may listen on any of its addresses. */
  static async take(host: string): Promise<PortReservation> {
    const server = createServer((socket) => socket.destroy());
    server.listen(0);
    await once(server, "listening");
    server.unref();
    const { port } = server.address() as AddressInfo;
    return new PortReservation(server, `${host}:${port}`);
  }

  /** From now on the task may listen there. */
  release(): Promise<void> {
    const server = this.#server;
    return new Promise((resolve) => (server ? server.close(() => resolve()) : resolve()));
  }
}
