import type {
  DeletedModel,
  Model,
  ModelPullProgress,
  ModelScale,
  ModelSpec,
} from "@heddle/contracts/api/models";
import { readJsonEvents } from "../../json-events.ts";
import { pathPart } from "../../path-part.ts";
import { SILENCE_MS } from "../../server-sent-events.ts";
import type { CallOptions, ChangeOptions, GetOptions, HttpTransport } from "../../transport.ts";

/** A worker may try several sources before the first byte. */
const PULL_START_TIMEOUT_MS = 120_000;

/** Models: `heddle.models`. Any OpenAI SDK can call them. */
export class Models {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  async list({ signal }: CallOptions = {}): Promise<readonly Model[]> {
    const request = { method: "GET", path: "/models", signal } as const;
    return (await this.#transport.json<{ data: readonly Model[] }>(request)).data;
  }

  get(id: string, { signal, consistency }: GetOptions = {}): Promise<Model> {
    const path = `/models/${pathPart(id)}`;
    return this.#transport.json({ method: "GET", path, signal, query: { consistency } });
  }

  /** Registers a model and its weights; repeated, it is the same model. */
  register(spec: ModelSpec, options: ChangeOptions = {}): Promise<Model> {
    return this.#transport.change({ method: "POST", path: "/models", body: spec }, options);
  }

  /** Sets the number of its replicas, or the bounds within which it follows the load. */
  scale(id: string, count: ModelScale, { signal }: CallOptions = {}): Promise<Model> {
    const path = `/models/${pathPart(id)}/scaling`;
    return this.#transport.json({ method: "PUT", path, body: count, signal });
  }

  /** Removes a model, and its replicas if no other model uses them. */
  remove(id: string, { signal }: CallOptions = {}): Promise<DeletedModel> {
    const path = `/models/${pathPart(id)}`;
    return this.#transport.json({ method: "DELETE", path, signal });
  }

  /**
   * A worker downloads the weights; ends when they are present. Leaving the loop cancels the pull.
   */
  async *pull(id: string, { signal }: CallOptions = {}): AsyncGenerator<ModelPullProgress, void> {
    const response = await this.#transport.open({
      method: "POST",
      path: `/models/${pathPart(id)}/pull`,
      signal,
      headers: { accept: "text/event-stream" },
      timeout: PULL_START_TIMEOUT_MS,
    });
    yield* readJsonEvents<ModelPullProgress>(response, SILENCE_MS, signal);
  }
}
