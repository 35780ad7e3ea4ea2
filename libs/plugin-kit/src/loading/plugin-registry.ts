import { PERMISSIONS } from "@heddle/contracts/api/permission";
import { panelSchema } from "@heddle/contracts/api/plugins/panels";
import type { Environment } from "@heddle/training/environments/environment";
import type { PluginAlgorithm } from "@heddle/training/plugins/plugin";
import { z } from "zod";
import type { Capability, Plugin } from "../plugin.ts";
import { blockShape, type PluginBlock } from "../points/blocks.ts";
import type { CommandVerb } from "../points/commands.ts";
import type { PluginEngine } from "../points/engines.ts";
import type { EventSink } from "../points/events.ts";
import { EXECUTOR_CALLS, type PluginExecutor } from "../points/executors.ts";
import type { AdmissionRule, FilterRule, ScoreRule } from "../points/jobs.ts";
import type { ConsolePanel } from "../points/panels.ts";
import type { PluginRoute } from "../points/routes.ts";

/** Names of plugins and of what they add. */
export const NAME = /^[A-Za-z0-9][\w.-]{0,127}$/;
export const PATH = /^(\/((?!\.{1,2}(?:\/|$))[A-Za-z0-9._~-]+|\{[A-Za-z]\w{0,62}\}))+$/;
const METHODS: readonly string[] = ["GET", "POST", "PUT", "DELETE"];
const MAX_ROUTES = 256;
const MAX_RULES = 16;
const MAX_TIMEOUT_MS = 600_000;

/** What a plugin's `setup` has added. */
export class PluginRegistry {
  readonly routes = new Map<string, PluginRoute>();
  readonly admission = new Map<string, AdmissionRule>();
  readonly filters = new Map<string, FilterRule>();
  readonly scores = new Map<string, ScoreRule>();
  readonly sinks = new Map<string, EventSink>();
  readonly algorithms = new Map<string, PluginAlgorithm>();
  readonly environments = new Map<string, () => Environment>();
  readonly commands = new Map<string, CommandVerb>();
  readonly blocks = new Map<string, PluginBlock>();
  readonly panels = new Map<string, ConsolePanel>();
  readonly engines = new Map<string, PluginEngine>();
  readonly executors = new Map<string, PluginExecutor>();
  readonly #capabilities: ReadonlySet<Capability>;
  readonly #builtIn: readonly string[];

  /** Algorithms of these names are the host's own. */
  constructor(capabilities: readonly Capability[], builtIn: readonly string[] = []) {
    this.#capabilities = new Set(capabilities);
    this.#builtIn = builtIn;
  }

  addRoute(route: PluginRoute): void {
    this.#needs("routes");
    this.#serve(route);
  }

  addPanel(panel: ConsolePanel): void {
    this.#add("console", "panel", this.panels, panel, ["show"]);
    const { name, title, permission } = panel;
    const isTitle = typeof title === "string" && title.length > 0 && title.length <= 80;
    if (!isTitle) throw new Error(`the panel ${name}: its title is a text of 1 to 80 characters`);
    this.#serve({
      method: "GET",
      path: `/console/${name}`,
      permission,
      summary: `The console's panel "${title}".`,
      reply: panelSchema,
      handle: ({ caller, signal }) => panel.show({ caller, signal }),
    });
  }

  #serve(route: PluginRoute): void {
    checkRoute(route);
    const { method, path } = route;
    // Parameters of other names make no other route.
    const key = `${method} ${path.replace(/\{\w+\}/g, "{}")}`;
    if (this.routes.has(key)) throw new Error(`there are two routes ${method} ${path}`);
    if (this.routes.size >= MAX_ROUTES) throw new Error(`it has more than ${MAX_ROUTES} routes`);
    this.routes.set(key, route);
  }

  addAdmission(rule: AdmissionRule): void {
    this.#add("admission", "admission rule", this.admission, rule, ["review"]);
  }

  addFilter(rule: FilterRule): void {
    this.#add("scheduler", "filter", this.filters, rule, ["admits"]);
  }

  addScore(rule: ScoreRule): void {
    this.#add("scheduler", "score", this.scores, rule, ["score"]);
  }

  addSink(sink: EventSink): void {
    this.#add("eventSinks", "event sink", this.sinks, sink, ["deliver"]);
    const { name, types, from = "now" } = sink;
    const isList = Array.isArray(types) && types.every((type) => typeof type === "string");
    if (types !== undefined && !isList)
      throw new Error(`the event sink ${name}: its types are a list of texts`);
    if (from !== "now" && from !== "start")
      throw new Error(`the event sink ${name}: \`from\` is now or start`);
  }

  addCommand(verb: CommandVerb): void {
    this.#add("commands", "command", this.commands, verb, ["run"]);
    if (typeof verb.summary !== "string")
      throw new Error(`the command ${verb.name} has no summary`);
  }

  addBlock(block: PluginBlock): void {
    this.#add("blocks", "block", this.blocks, block, []);
    checkBlock(block);
  }

  addEngine(engine: PluginEngine): void {
    this.#add("engines", "engine", this.engines, engine, ["answer"]);
  }

  addExecutor(executor: PluginExecutor): void {
    this.#add("executors", "executor", this.executors, executor, EXECUTOR_CALLS);
  }

  addEnvironment(name: string, make: () => Environment): void {
    this.#needs("environments");
    checkName("environment", name);
    if (this.environments.has(name)) throw taken("environment", name);
    this.environments.set(name, make);
  }

  addAlgorithm(name: string, algorithm: PluginAlgorithm): void {
    this.#needs("algorithms");
    checkName("algorithm", name);
    if (this.algorithms.has(name) || this.#builtIn.includes(name)) throw taken("algorithm", name);
    checkAlgorithm(name, algorithm);
    this.algorithms.set(name, algorithm);
  }

  #add<Rule extends { readonly name: string }>(
    capability: Capability,
    kind: string,
    all: Map<string, Rule>,
    rule: Rule,
    methods: readonly (keyof Rule)[],
  ): void {
    this.#needs(capability);
    const name = (rule as Partial<Rule> | undefined)?.name;
    checkName(kind, name);
    const missing = methods.find((method) => typeof rule[method] !== "function");
    if (missing !== undefined) {
      throw new Error(`the ${kind} ${name} has no function \`${String(missing)}\``);
    }
    if (all.has(name)) throw taken(kind, name);
    if (all.size >= MAX_RULES) throw new Error(`it has more than ${MAX_RULES} of the kind ${kind}`);
    all.set(name, rule);
  }

  #needs(capability: Capability): void {
    if (this.#capabilities.has(capability)) return;
    throw new Error(
      `it uses \`${capability}\` and does not declare it: add it to its \`capabilities\``,
    );
  }
}

function checkName(kind: string, name: unknown): asserts name is string {
  if (typeof name === "string" && NAME.test(name)) return;
  throw new Error(`"${String(name).slice(0, 80)}" is not a valid name of a plugin's ${kind}`);
}

function taken(kind: string, name: string): Error {
  return new Error(`there is an ${kind} ${name} already`);
}

function checkBlock(block: PluginBlock): void {
  const where = `the block ${block.name}`;
  const { job, run, resume } = block;
  const functions = [job, run].filter((each) => each !== undefined);
  if (functions.length !== 1 || typeof functions[0] !== "function")
    throw new Error(`${where} has either a function \`job\` or a function \`run\``);
  const [fault] = blockShape.safeParse(block).error?.issues ?? [];
  if (fault) throw new Error(`${where}: ${fault.path.join(".")}: ${fault.message}`);
  if (!isObjectSchema(block.config))
    throw new Error(`${where}: its config is a z.object(...) of zod 4`);
  if (resume === undefined) return;
  if (!run || !isSchema(resume))
    throw new Error(`${where}: \`resume\` is a schema of zod 4, for what its \`run\` yields`);
}

function checkAlgorithm(name: string, { config, plan }: PluginAlgorithm): void {
  if (typeof plan !== "function") throw new Error(`the algorithm ${name} has no plan`);
  if (typeof config !== "object" || config?.["type"] !== "object") {
    throw new Error(`the config of the algorithm ${name} must be a JSON Schema of type object`);
  }
}

/** Who may call a route. */
export const ACCESS = [...PERMISSIONS, "authenticated", "public"] as const;

function checkRoute(route: PluginRoute): void {
  const { method, path, permission, summary, handle, timeoutMs = 1 } = route;
  const where = `the route ${method} ${path}`;
  if (!METHODS.includes(method))
    throw new Error(`${where}: its method is one of ${METHODS.join(", ")}`);
  if (typeof path !== "string" || !PATH.test(path) || path.length > 512) {
    throw new Error(
      `${where}: a path is like /items/{id}: letters, digits, . _ ~ - and parameters in braces`,
    );
  }
  if (!(ACCESS as readonly unknown[]).includes(permission)) {
    const known = ACCESS.join(", ");
    throw new Error(
      `${where} declares ${permission === undefined ? "no permission" : `the permission ${String(permission)}`}: declare one of ${known}`,
    );
  }
  if (typeof summary !== "string" || summary === "") throw new Error(`${where} has no summary`);
  if (typeof handle !== "function") throw new Error(`${where} has no function \`handle\``);
  if (!(timeoutMs >= 1 && timeoutMs <= MAX_TIMEOUT_MS)) {
    throw new Error(`${where}: timeoutMs is a number from 1 to ${MAX_TIMEOUT_MS}`);
  }
  checkSchemas(where, route);
}

function checkSchemas(where: string, { method, query, body, reply, events }: PluginRoute): void {
  if (query && !isObjectSchema(query))
    throw new Error(`${where}: its query is a z.object(...) of zod 4`);
  if (body && !isObjectSchema(body))
    throw new Error(`${where}: its body is a z.object(...) of zod 4`);
  if (body && method === "GET") throw new Error(`${where}: GET has no body`);
  if (reply && events)
    throw new Error(`${where} has both a reply and events: leave one of them out`);
  for (const schema of [reply, ...Object.values(events ?? {})]) {
    if (schema && !isSchema(schema))
      throw new Error(`${where}: its reply and events are schemas of zod 4`);
  }
}

function isSchema(value: unknown): value is z.ZodType {
  // Schemas of zod 3 have no `_zod` and no JSON Schema.
  return typeof (value as Partial<z.ZodType> | undefined)?._zod === "object";
}

function isObjectSchema(value: unknown): value is z.ZodObject {
  return isSchema(value) && typeof (value as Partial<z.ZodObject>).shape === "object";
}

/** Reads the settings by the plugin's schema. Throws with all their faults. */
export function parsedConfig<Config>({ config: schema }: Plugin<Config>, given: unknown): Config {
  if (!schema) {
    if (given === undefined) return {} as Config;
    throw new Error("it takes no config: leave `config` out");
  }
  if (!isSchema(schema)) throw new Error("its `config` is not a schema of zod 4");
  const { data, error } = schema.safeParse(given ?? {});
  if (!error) return data as Config;
  const faults = error.issues
    .slice(0, 20)
    .map(({ path, message }) => `${["config", ...path.map(String)].join(".")}: ${message}`);
  throw new Error(faults.join("; "));
}
