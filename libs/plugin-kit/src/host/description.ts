import { z } from "zod";
import type { LoadedPlugin } from "../loading/load-plugin.ts";
import { ACCESS, NAME, PATH } from "../loading/plugin-registry.ts";
import { CAPABILITIES } from "../plugin.ts";
import { blockShape, type PluginBlock } from "../points/blocks.ts";
import type { PluginRoute } from "../points/routes.ts";
import { jsonOf } from "./plugin-calls.ts";

const text = z.string().max(4_096);
const name = z.string().regex(NAME);
const names = z.array(name).max(1_024);
const jsonSchema = z.record(z.string(), z.unknown());

const routeDescription = z.object({
  key: text,
  method: z.enum(["GET", "POST", "PUT", "DELETE"]),
  path: text.regex(PATH),
  permission: z.enum(ACCESS),
  summary: text,
  timeoutMs: z.number(),
  /** JSON Schemas. */
  query: jsonSchema.optional(),
  body: jsonSchema.optional(),
  reply: jsonSchema.optional(),
  events: z.record(z.string(), jsonSchema).optional(),
});

/** What a plugin is and adds, as data. Its process may say anything: names become parts of paths. */
const pluginDescription = z.object({
  name,
  version: text,
  capabilities: z.array(z.enum(CAPABILITIES)),
  digest: text,
  /** The JSON Schema of its settings. */
  config: jsonSchema.optional(),
  routes: z.array(routeDescription).max(256),
  admission: z.array(z.object({ name, onFailure: z.enum(["refuse", "admit"]) })).max(16),
  filters: names,
  scores: names,
  sinks: z
    .array(
      z.object({ name, types: z.array(text).max(64).optional(), from: z.enum(["now", "start"]) }),
    )
    .max(16),
  algorithms: names,
  environments: names,
  commands: z.array(z.object({ name, summary: text })).max(16),
  blocks: z.array(blockShape.extend({ config: jsonSchema, runs: z.boolean() })).max(16),
  engines: names,
  executors: names,
  panels: z.array(z.object({ name, title: text, permission: text })).max(16),
});

export type PluginDescription = z.output<typeof pluginDescription>;
export type BlockDescription = PluginDescription["blocks"][number];
export type SinkDescription = PluginDescription["sinks"][number];
export type RouteDescription = z.output<typeof routeDescription>;

const DEFAULT_TIMEOUT_MS = 10_000;
/** The most characters of all its schemas together, which become part of the OpenAPI document. */
const MAX_CHARACTERS = 4_194_304;
/** Deeper JSON could not be written everywhere. */
const MAX_LEVELS = 256;

/** Describes what a plugin has added. Throws where a schema has no JSON Schema, or is too large. */
export function describePlugin(loaded: LoadedPlugin): PluginDescription {
  return withinBounds(descriptionOf(loaded));
}

/** What a plugin's process says of itself. Throws where it is invalid, too large, or nested too deeply. */
export function describedAs(given: unknown): PluginDescription {
  return withinBounds(pluginDescription.parse(given));
}

function withinBounds(description: PluginDescription): PluginDescription {
  if (!isNestedWithin(description, MAX_LEVELS)) {
    throw new Error(`what it adds has schemas of more than ${MAX_LEVELS} levels`);
  }
  jsonOf(description, "what it adds", MAX_CHARACTERS);
  return description;
}

function isNestedWithin(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return true;
  return levels > 0 && Object.values(value).every((each) => isNestedWithin(each, levels - 1));
}

function descriptionOf(loaded: LoadedPlugin): PluginDescription {
  const { plugin, source, capabilities, registry } = loaded;
  return {
    name: plugin.name,
    version: plugin.version,
    capabilities: [...capabilities],
    digest: source.digest,
    config: plugin.config && jsonSchemaOf(plugin.config, "input"),
    routes: [...registry.routes].map(([key, route]) => describeRoute(plugin.name, key, route)),
    admission: [...registry.admission.values()].map(({ name, onFailure = "refuse" }) => {
      return { name, onFailure };
    }),
    filters: [...registry.filters.keys()],
    scores: [...registry.scores.keys()],
    sinks: [...registry.sinks.values()].map(({ name, types, from = "now" }) => {
      return { name, types: types && [...types], from };
    }),
    algorithms: [...registry.algorithms.keys()],
    environments: [...registry.environments.keys()],
    commands: [...registry.commands.values()].map(({ name, summary }) => ({ name, summary })),
    blocks: [...registry.blocks.values()].map(describeBlock),
    engines: [...registry.engines.keys()],
    executors: [...registry.executors.keys()],
    panels: [...registry.panels.values()].map(({ name, title, permission }) => {
      return { name, title, permission };
    }),
  };
}

function describeBlock(block: PluginBlock): BlockDescription {
  const config = jsonSchemaOf(block.config, "input");
  return { ...blockShape.parse(block), config, runs: block.run !== undefined };
}

function describeRoute(plugin: string, key: string, route: PluginRoute): RouteDescription {
  const { method, path, permission, summary, query, body, reply, events, timeoutMs } = route;
  const own = (part: string, schema: z.ZodType, io: "input" | "output") =>
    withId(`urn:heddle:${plugin}:${encodeURIComponent(key)}:${part}`, jsonSchemaOf(schema, io));
  const ofEvents = Object.entries(events ?? {}).map(([event, schema]) => {
    return [event, own(`events:${event}`, schema, "output")] as const;
  });
  return {
    key,
    method,
    path,
    permission,
    summary,
    timeoutMs: timeoutMs ?? DEFAULT_TIMEOUT_MS,
    query: query && jsonSchemaOf(query, "output"),
    body: body && own("body", body, "input"),
    reply: reply && own("reply", reply, "output"),
    events: events && Object.fromEntries(ofEvents),
  };
}

/** A schema that refers to itself is a resource of its own within a document. */
function withId($id: string, schema: Record<string, unknown>): Record<string, unknown> {
  return JSON.stringify(schema).includes('"$ref":"#') ? { $id, ...schema } : schema;
}

function jsonSchemaOf(schema: z.ZodType, io: "input" | "output"): Record<string, unknown> {
  const { $schema: _, ...json } = z.toJSONSchema(schema, {
    io,
    unrepresentable: "any",
    reused: "inline",
  });
  return json;
}
