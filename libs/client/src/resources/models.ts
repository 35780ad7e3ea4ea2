import type { registerModelRequest } from "@heddle/contracts/models";
import { pathPart } from "../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../transport.ts";
import type { Model } from "../views.ts";

/** What `models.register` takes: the body of POST /models. */
export type ModelSpec = (typeof registerModelRequest)["_zod"]["input"];

/** Models: `heddle.models`. To ask one, any OpenAI SDK does. */
export class Models {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  async list({ signal }: CallOptions = {}): Promise<readonly Model[]> {
    const request = { method: "GET", path: "/models", signal } as const;
    return (await this.#transport.json<{ data: readonly Model[] }>(request)).data;
  }

  get(id: string, { signal }: CallOptions = {}): Promise<Model> {
    const path = `/models/${pathPart(id)}`;
    return this.#transport.json({ method: "GET", path, signal });
  }

  /** Registers a model and the weights that answer for it; repeated, it is the same model. */
  register(spec: ModelSpec, options: ChangeOptions = {}): Promise<Model> {
    return this.#transport.change({ method: "POST", path: "/models", body: spec }, options);
  }

  /** Removes a model, and its replicas where no other model uses them. */
  async remove(id: string, { signal }: CallOptions = {}): Promise<void> {
    const path = `/models/${pathPart(id)}`;
    await this.#transport.json({ method: "DELETE", path, signal });
  }
}
