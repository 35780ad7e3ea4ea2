import type { Worker } from "@heddle/contracts/api/workers";
import { pathPart } from "../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../transport.ts";

/** How a node is emptied. */
export interface DrainOptions extends ChangeOptions {
  /** When what still runs is ended, checkpointed or not; 600 where absent. */
  readonly deadlineSeconds?: number | undefined;
}

/** Nodes: `heddle.workers`. */
export class Workers {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  async list({ signal }: CallOptions = {}): Promise<readonly Worker[]> {
    const request = { method: "GET", path: "/workers", signal } as const;
    return (await this.#transport.json<{ data: readonly Worker[] }>(request)).data;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Worker> {
    return this.#transport.json({ method: "GET", path: pathOf(id), signal });
  }

  /** Has its tasks checkpoint and move; it takes nothing new. */
  drain(id: string, { deadlineSeconds, ...options }: DrainOptions = {}): Promise<Worker> {
    const body = deadlineSeconds === undefined ? {} : { deadline_seconds: deadlineSeconds };
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/drain`, body }, options);
  }

  /** Ends a drain. */
  resume(id: string, options: ChangeOptions = {}): Promise<Worker> {
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/resume` }, options);
  }
}

function pathOf(id: string): string {
  return `/workers/${pathPart(id)}`;
}
