import { openApiDocument } from "@heddle/contracts/openapi";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { pluginRoutes, type ServedRoute } from "../../plugins/plugin-operations.ts";

type Json = Readonly<Record<string, unknown>>;

/** The OpenAPI document of this master: Heddle's operations, and the routes of its plugins. */
export function documentWithPlugins(version: string, plugins: PluginSet) {
  const document = openApiDocument(version);
  const paths: Record<string, Readonly<Record<string, Json>>> = { ...document.paths };
  for (const each of pluginRoutes(plugins)) {
    const { path, method } = each.operation;
    paths[path] = { ...paths[path], [method.toLowerCase()]: operationObject(each) };
  }
  return { ...document, paths };
}

function operationObject({ plugin, route, operation }: ServedRoute): Json {
  const { operationId, permission, summary, path } = operation;
  const parameters = [...pathParameters(path), ...queryParameters(route.query)];
  return {
    tags: [plugin.name],
    operationId,
    summary,
    "x-permission": permission,
    ...(permission === "public" ? { security: [] } : {}),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(route.body && {
      requestBody: { required: true, content: { "application/json": { schema: route.body } } },
    }),
    responses: {
      ...successOf(route),
      default: { $ref: "#/components/responses/Problem" },
    },
  };
}

function successOf({ reply, events }: ServedRoute["route"]): Json {
  if (events) {
    const content = { "text/event-stream": { schema: { type: "string" }, "x-events": events } };
    return { 200: { description: "OK", content } };
  }
  if (!reply) return { 204: { description: "No Content" } };
  return { 200: { description: "OK", content: { "application/json": { schema: reply } } } };
}

function pathParameters(path: string): Json[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => {
    return { name, in: "path", required: true, schema: { type: "string" } };
  });
}

function queryParameters(query: Json | undefined): Json[] {
  const properties = (query?.["properties"] ?? {}) as Readonly<Record<string, Json>>;
  return Object.entries(properties).map(([name, { description, ...schema }]) => {
    return { name, in: "query", ...(description ? { description } : {}), schema };
  });
}
