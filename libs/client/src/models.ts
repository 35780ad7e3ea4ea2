import type { CallOptions, Transport } from "./transport.ts";
import type { Model } from "./views.ts";

/** Models: `heddle.models`. To ask one, any OpenAI SDK does. */
export class Models {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list({ signal }: CallOptions = {}): Promise<readonly Model[]> {
    const request = { method: "GET", path: "/models", signal } as const;
    return (await this.#transport.json<{ data: readonly Model[] }>(request)).data;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Model> {
    const path = `/models/${encodeURIComponent(id)}`;
    return this.#transport.json({ method: "GET", path, signal });
  }
}
