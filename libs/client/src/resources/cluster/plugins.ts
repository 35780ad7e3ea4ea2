import type { PanelView } from "@heddle/contracts/api/plugins/panels";
import type { PluginView } from "@heddle/contracts/api/plugins/plugins";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Plugins of the answering master: `heddle.plugins`. */
export class Plugins {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  async list({ signal }: CallOptions = {}): Promise<readonly PluginView[]> {
    const request = { method: "GET", path: "/plugins", signal } as const;
    return (await this.#transport.json<{ data: readonly PluginView[] }>(request)).data;
  }

  get(name: string, { signal }: CallOptions = {}): Promise<PluginView> {
    return this.#transport.json({ method: "GET", path: `/plugins/${pathPart(name)}`, signal });
  }

  /** What a panel of the console shows now. */
  panel(plugin: string, name: string, { signal }: CallOptions = {}): Promise<PanelView> {
    const path = `/custom/${pathPart(plugin)}/console/${pathPart(name)}`;
    return this.#transport.json({ method: "GET", path, signal });
  }
}
