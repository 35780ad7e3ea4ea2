import type { Route } from "@heddle/contracts/api/cluster";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Inject } from "@nestjs/common";
import { VERSION } from "../../config/version.ts";
import { ROUTES } from "../../http/route-table.ts";
import { documentWithPlugins } from "../plugins/plugin-document.ts";

/** The master's routes, as two of its operations show them. */
export class ApiDescription {
  readonly routes: readonly Route[];
  readonly #plugins: PluginSet;
  #document: string | undefined;

  constructor(@Inject(ROUTES) routes: readonly Route[], @Inject(PluginSet) plugins: PluginSet) {
    this.routes = routes;
    this.#plugins = plugins;
  }

  /** Generated once, at the first call. */
  get document(): string {
    this.#document ??= JSON.stringify(documentWithPlugins(VERSION, this.#plugins));
    return this.#document;
  }
}
