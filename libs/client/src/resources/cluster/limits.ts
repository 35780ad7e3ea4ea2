import type { LimitedView, LimitSettings } from "@heddle/contracts/api/limits/limits";
import type { LimitedKind } from "@heddle/contracts/limits";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

export interface LimitedModelOption {
  /** The project that owns the model; a model of the cluster if absent. */
  readonly project?: string | undefined;
}

/** Limits of keys, projects and models, and prices of models: `heddle.limits`. */
export class LimitsResource {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** What has limits or prices. */
  list(options: CallOptions = {}): Pages<LimitedView> {
    return new Pages(this.#transport, "/limits", {}, options);
  }

  get(
    kind: LimitedKind,
    name: string,
    { project, signal }: LimitedModelOption & CallOptions = {},
  ): Promise<LimitedView> {
    return this.#transport.json({
      method: "GET",
      path: pathOf(kind, name),
      query: { project },
      signal,
    });
  }

  /** Replaces the limits; absent ones are removed. */
  set(
    kind: LimitedKind,
    name: string,
    settings: LimitSettings,
    { project, ...options }: LimitedModelOption & ChangeOptions = {},
  ): Promise<LimitedView> {
    const path = pathOf(kind, name);
    const query = { project };
    return this.#transport.change({ method: "PUT", path, query, body: settings }, options);
  }
}

function pathOf(kind: LimitedKind, name: string): string {
  return `/limits/${pathPart(kind)}/${pathPart(name)}`;
}
