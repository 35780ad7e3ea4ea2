import type { Worker } from "@heddle/contracts/api/workers";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** How to list nodes. */
export interface WorkerListOptions extends CallOptions {
  /** Nodes of one reply, 1 to 1,000: a long list is read in several. By default it is one. */
  readonly pageSize?: number | undefined;
}

/** How to drain a node. */
export interface DrainOptions extends ChangeOptions {
  /** The deadline at which running tasks are killed, checkpointed or not; 600 by default. */
  readonly deadlineSeconds?: number | undefined;
}

/** Nodes: `heddle.workers`. */
export class Workers {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  async list({ pageSize, signal }: WorkerListOptions = {}): Promise<readonly Worker[]> {
    const read: (readonly Worker[])[] = [];
    const list = new Pages<Worker>(this.#transport, "/workers", { limit: pageSize }, { signal });
    for await (const { data } of list.pages()) read.push(data);
    return read.flat();
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Worker> {
    return this.#transport.json({ method: "GET", path: pathOf(id), signal });
  }

  /** The node's tasks checkpoint and move; it accepts no new ones. */
  drain(id: string, { deadlineSeconds, ...options }: DrainOptions = {}): Promise<Worker> {
    const body = deadlineSeconds === undefined ? {} : { deadline_seconds: deadlineSeconds };
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/drain`, body }, options);
  }

  /** Cancels a drain. */
  resume(id: string, options: ChangeOptions = {}): Promise<Worker> {
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/resume` }, options);
  }

  /** Revokes the node's certificates: masters refuse it until it joins again. */
  revoke(id: string, options: ChangeOptions = {}): Promise<Worker> {
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/revoke` }, options);
  }
}

function pathOf(id: string): string {
  return `/workers/${pathPart(id)}`;
}
