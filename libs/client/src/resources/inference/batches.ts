import type { ApiBatch, BatchPage, BatchRequest } from "@heddle/contracts/api/inference/batches";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Files of calls that run at a low priority: `heddle.batches`. */
export class Batches {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Creates a batch. A refused request is not repeated. */
  create(request: BatchRequest, { signal }: CallOptions = {}): Promise<ApiBatch> {
    const path = "/batches";
    return this.#transport.json({ method: "POST", path, body: request, signal, maxRetries: 0 });
  }

  /** A page of the key's batches, the newest first. */
  list(
    query: { readonly limit?: number; readonly after?: string } = {},
    { signal }: CallOptions = {},
  ): Promise<BatchPage> {
    return this.#transport.json({ method: "GET", path: "/batches", query: { ...query }, signal });
  }

  /** A batch with its progress. */
  retrieve(id: string, { signal }: CallOptions = {}): Promise<ApiBatch> {
    return this.#transport.json({ method: "GET", path: pathOf(id), signal });
  }

  /** Cancels a batch; one that is being cancelled stays so. */
  cancel(id: string, { signal }: CallOptions = {}): Promise<ApiBatch> {
    const path = `${pathOf(id)}/cancel`;
    return this.#transport.json({ method: "POST", path, signal, maxRetries: 0 });
  }
}

function pathOf(id: string): string {
  return `/batches/${pathPart(id)}`;
}
