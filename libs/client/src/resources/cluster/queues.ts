import type { Queue, QueueSettings } from "@heddle/contracts/api/queues";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** Queues: `heddle.queues`. */
export class Queues {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  list(options: CallOptions = {}): Pages<Queue> {
    return new Pages(this.#transport, "/queues", {}, options);
  }

  /** Creates the queue or replaces its settings; absent ones get their defaults. */
  set(name: string, settings: QueueSettings, options: ChangeOptions = {}): Promise<Queue> {
    const path = `/queues/${pathPart(name)}`;
    return this.#transport.change({ method: "PUT", path, body: settings }, options);
  }
}
