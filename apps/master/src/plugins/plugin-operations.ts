import { type ApiOperation, json } from "@heddle/contracts/api/operation";
import { PLUGIN_ROUTES } from "@heddle/contracts/api/operations";
import type { RouteDescription } from "@heddle/plugin-kit/host/description";
import type { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { z } from "zod";

/** A route of a plugin, and the operation as which it is served. */
export interface ServedRoute {
  readonly plugin: HostedPlugin;
  readonly route: RouteDescription;
  readonly operation: ApiOperation;
}

/** The routes of all plugins. */
export function pluginRoutes(plugins: PluginSet): ServedRoute[] {
  return plugins.usable.flatMap((plugin) =>
    (plugin.description?.routes ?? []).map((route) => {
      return { plugin, route, operation: operationOf(plugin.name, route) };
    }),
  );
}

export function pluginOperationsOf(plugins: PluginSet): ApiOperation[] {
  return pluginRoutes(plugins).map(({ operation }) => operation);
}

/** The plugin parses query and body by its own schemas; here only unknown parameters are refused. */
function operationOf(name: string, route: RouteDescription): ApiOperation {
  const { method, path, permission, summary, query, body } = route;
  return {
    operationId: `custom.${name}.${method.toLowerCase()}${path.replace(/[^A-Za-z0-9]+/g, "_")}`,
    method,
    path: `${PLUGIN_ROUTES}/${name}${path}`,
    permission: permission as ApiOperation["permission"],
    summary,
    ...(query && { query: parametersOf(query) }),
    ...(body && { body: z.looseObject({}) }),
    replies: repliesOf(route),
  };
}

function parametersOf({ properties }: NonNullable<RouteDescription["query"]>): z.ZodObject {
  const names = Object.keys((properties ?? {}) as object);
  return z.object(Object.fromEntries(names.map((each) => [each, z.unknown().optional()])));
}

/** None for a stream, which may have no end with any method. */
function repliesOf({ reply, events }: RouteDescription): ApiOperation["replies"] {
  if (events) return {};
  return reply ? { 200: json(z.unknown()) } : { 204: {} };
}
