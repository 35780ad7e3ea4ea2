import type { LimitedView, LimitSettings } from "@heddle/contracts/api/limits/limits";
import type { LimitedKind } from "@heddle/contracts/limits";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

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

  get(kind: LimitedKind, name: string, { signal }: CallOptions = {}): Promise<LimitedView> {
    return this.#transport.json({ method: "GET", path: pathOf(kind, name), signal });
  }

  /** Replaces the limits; absent ones are removed. */
  set(
    kind: LimitedKind,
    name: string,
    settings: LimitSettings,
    options: ChangeOptions = {},
  ): Promise<LimitedView> {
    const path = pathOf(kind, name);
    return this.#transport.change({ method: "PUT", path, body: settings }, options);
  }
}

function pathOf(kind: LimitedKind, name: string): string {
  return `/limits/${pathPart(kind)}/${pathPart(name)}`;
}
