import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { listSchema } from "../parameters.ts";

const count = z.int().min(0);
const names = z.array(z.string());

const pluginSchema = z
  .object({
    object: z.literal("plugin"),
    id: z.string().describe("Its name; of one that could not be loaded, its place."),
    from: z.string().describe("The file, folder or package that the configuration names."),
    version: z.string().nullable(),
    digest: z.string().nullable().describe("Of all its files: `sha256:` and hexadecimal digits."),
    state: z
      .enum(["ready", "restarting", "refused", "idle"])
      .describe("`idle`: it adds nothing that runs on a master."),
    reason: z.string().nullable().describe("Why it is refused, or is started again."),
    isolation: z.enum(["process", "none"]),
    capabilities: names,
    routes: z.array(
      z.object({
        method: z.string(),
        path: z.string(),
        permission: z.string(),
        summary: z.string(),
      }),
    ),
    admission: names.describe("Rules that review jobs before they are accepted."),
    scheduler: names.describe("Filters and scores of nodes."),
    event_sinks: names,
    algorithms: names,
    environments: names,
    commands: z.array(z.object({ name: z.string(), summary: z.string() })),
    blocks: names.describe("Kinds of steps of pipelines."),
    engines: names.describe("Of models: registrations name them as `PLUGIN.NAME`."),
    executors: names.describe("Of tasks: workers name them as `--executor PLUGIN.NAME`."),
    panels: z
      .array(z.object({ name: z.string(), title: z.string(), permission: z.string() }))
      .describe("Panels of the console: `GET /api/v1/custom/PLUGIN/console/NAME`."),
    config_schema: z
      .record(z.string(), z.unknown())
      .nullable()
      .describe("The JSON Schema of its settings."),
    calls: count,
    restarts: count,
    faults: z
      .object({ threw: count, late: count, blocked: count, exited: count, memory: count })
      .describe("How often it failed, by how, since the master's start."),
    memory_bytes: z.number().min(0).describe("Of its own process; 0 without one."),
  })
  .meta({ id: "Plugin", description: "A plugin as the answering master has it." });

export type PluginView = DataOf<typeof pluginSchema>;

export const pluginOperations = {
  list: {
    operationId: "plugins.list",
    method: "GET",
    path: "/api/v1/plugins",
    permission: "cluster:read",
    summary: "Lists the plugins of the answering master, with what they add and how they failed.",
    replies: { 200: json(listSchema(pluginSchema)) },
  },
  get: {
    operationId: "plugins.get",
    method: "GET",
    path: "/api/v1/plugins/{name}",
    permission: "cluster:read",
    summary: "Shows one plugin of the answering master.",
    replies: { 200: json(pluginSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
