import { resolvesWithin } from "@heddle/base/async/resolves-within";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import type { PluginToolkit } from "@heddle/training/plugins/toolkit";
import {
  CAPABILITIES,
  type Capability,
  PLUGIN_API_VERSION,
  type Plugin,
  type PluginApi,
  type PluginHostKind,
  TRAINING_CAPABILITIES,
} from "../plugin.ts";
import type { PluginBlock } from "../points/blocks.ts";
import type { PluginRoute } from "../points/routes.ts";
import { LoadFault, thrownText } from "./load-fault.ts";
import { holdToDigest, moduleUrl, provideKit } from "./module-hooks.ts";
import { NAME, PluginRegistry, parsedConfig } from "./plugin-registry.ts";
import { findSource, type PluginSource } from "./plugin-source.ts";

/** A slower setup is considered hung. */
const SETUP_MS = 10_000;

/** The process that loads a plugin. */
export interface PluginHost {
  readonly kind: PluginHostKind;
  log(message: string): void;
  /** Called before each part of the plugin's code that may never end. */
  onStep?(part: string): void;
  /** Their names are taken. */
  readonly builtInAlgorithms?: readonly string[];
  /** In trainers only. */
  readonly toolkit?: PluginToolkit;
}

export interface LoadedPlugin {
  readonly plugin: Plugin;
  readonly source: PluginSource;
  readonly capabilities: readonly Capability[];
  readonly registry: PluginRegistry;
}

/** Imports a plugin, checks it, and has it add what it has. Rejects with the reason. */
export async function loadPlugin(entry: PluginEntry, host: PluginHost): Promise<LoadedPlugin> {
  const source = findSource(entry);
  checkDigest(source, entry);
  provideKit();
  if (entry.digests) holdToDigest(source);
  const step = <Result>(part: string, work: () => Promise<Result>) => {
    host.onStep?.(part);
    return within(work(), part);
  };
  const module = await step("its module", () => import(moduleUrl(source.file)));
  const plugin = pluginOf(module, host.kind);
  const capabilities = capabilitiesOf(plugin);
  host.onStep?.("the check of its config");
  const config = parsedConfig(plugin, entry.config);
  const registry = new PluginRegistry(capabilities, host.builtInAlgorithms);
  await step("its setup", async () => plugin.setup(apiOf(registry, config, host)));
  return { plugin, source, capabilities, registry };
}

function checkDigest({ digest }: PluginSource, { digests }: PluginEntry): void {
  if (!digests || digests.includes(digest)) return;
  throw new Error(
    `its digest is ${digest}, which is not allowed: check its files, and write this digest into the list if they are what you want`,
  );
}

function pluginOf(module: { readonly default?: unknown }, kind: PluginHostKind): Plugin {
  const plugin = module.default as Partial<Plugin> | undefined;
  if (typeof plugin !== "object" || plugin === null) {
    throw new Error("its default export must be an object with name, version, apiVersion, setup");
  }
  const { name, version, apiVersion, setup } = plugin;
  if (typeof name !== "string" || !NAME.test(name)) throw new Error(`its name is ${name}`);
  if (typeof version !== "string") throw new Error(`its version is ${version}, not a text`);
  if (apiVersion !== PLUGIN_API_VERSION) {
    const message = `its apiVersion is ${JSON.stringify(apiVersion)}, and this ${kind === "trainer" ? "worker" : kind} has ${PLUGIN_API_VERSION}`;
    throw new Error(`${message}: use a version of the plugin that was made for it`);
  }
  if (typeof setup !== "function") throw new Error("its `setup` is not a function");
  return plugin as Plugin;
}

function capabilitiesOf({ capabilities = TRAINING_CAPABILITIES }: Plugin): readonly Capability[] {
  if (!Array.isArray(capabilities)) throw new Error("its `capabilities` are not a list");
  const unknown = capabilities.find((each) => !CAPABILITIES.includes(each));
  if (unknown === undefined) return capabilities;
  throw new Error(`there is no capability ${unknown}: there are ${CAPABILITIES.join(", ")}`);
}

function apiOf<Config>(
  registry: PluginRegistry,
  config: Config,
  host: PluginHost,
): PluginApi<Config> {
  return {
    host: host.kind,
    config,
    log: (message) => host.log(message),
    routes: { add: (route) => registry.addRoute(route as unknown as PluginRoute) },
    admission: { add: (rule) => registry.addAdmission(rule) },
    scheduler: {
      filter: (rule) => registry.addFilter(rule),
      score: (rule) => registry.addScore(rule),
    },
    eventSinks: { add: (sink) => registry.addSink(sink) },
    environments: { add: (name, make) => registry.addEnvironment(name, make) },
    algorithms: { add: (name, algorithm) => registry.addAlgorithm(name, algorithm) },
    commands: { add: (verb) => registry.addCommand(verb) },
    blocks: { add: (block) => registry.addBlock(block as unknown as PluginBlock) },
    console: { add: (panel) => registry.addPanel(panel) },
    engines: { add: (engine) => registry.addEngine(engine) },
    executors: { add: (executor) => registry.addExecutor(executor) },
    toolkit: host.toolkit ?? NO_TOOLKIT,
  };
}

/** Plugins may keep the toolkit for later; they cannot use it outside of trainers. */
const NO_TOOLKIT = new Proxy({} as PluginToolkit, {
  get: (_target, name) => {
    throw new Error(`\`toolkit.${String(name)}\` is there in trainers only: use it in a plan`);
  },
});

/** Rejects with a LoadFault where the work fails, or takes too long. */
async function within<Result>(work: Promise<Result>, what: string): Promise<Result> {
  const done = work.catch((cause: unknown) => {
    throw new LoadFault("threw", thrownText(cause), { cause });
  });
  if (await resolvesWithin(done, SETUP_MS)) return done;
  throw new LoadFault("late", `${what} takes longer than ${SETUP_MS} ms`);
}
