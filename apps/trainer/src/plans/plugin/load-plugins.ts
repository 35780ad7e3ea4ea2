import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { AppError } from "@heddle/base/errors";
import type { Environment } from "@heddle/training/environments/environment";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import {
  PLUGIN_API_VERSION,
  type PluginAlgorithm,
  type TrainingPlugin,
} from "@heddle/training/plugins/plugin";
import { PLUGIN_TOOLKIT } from "@heddle/training/plugins/toolkit";

/** The environments and algorithms of a trainer, built in or of its plugins. */
export interface LoadedPlugins {
  readonly environments: ReadonlyMap<string, () => Environment>;
  /** Those of plugins only. */
  readonly algorithms: ReadonlyMap<string, PluginAlgorithm>;
}

const BUILT_IN_ALGORITHMS: readonly string[] = ["ppo", "weave"];
const NAME = /^[A-Za-z0-9][\w.-]{0,127}$/;
/** A slower setup is considered hung. */
const SETUP_MS = 10_000;

/** Loads plugins in their order. Rejects with an AppError `invalid_value` that names the file. */
export async function loadPlugins(files: readonly string[]): Promise<LoadedPlugins> {
  const environments = new Map(ENVIRONMENTS);
  const algorithms = new Map<string, PluginAlgorithm>();
  for (const file of files) {
    try {
      const plugin = await importPlugin(file);
      const added = plugin.setup({
        environments: { add: (name, make) => addTo(environments, "environment", name, make) },
        algorithms: {
          add: (name, algorithm) => {
            if (BUILT_IN_ALGORITHMS.includes(name)) throw taken("algorithm", name);
            checkAlgorithm(name, algorithm);
            addTo(algorithms, "algorithm", name, algorithm);
          },
        },
        toolkit: PLUGIN_TOOLKIT,
      });
      await within(Promise.resolve(added), SETUP_MS);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new AppError("invalid_value", `the plugin ${file} cannot be used: ${why}`, { cause });
    }
  }
  return { environments, algorithms };
}

async function importPlugin(file: string): Promise<TrainingPlugin> {
  const module = (await import(pathToFileURL(resolve(file)).href)) as { default?: unknown };
  const plugin = module.default as Partial<TrainingPlugin> | undefined;
  if (typeof plugin !== "object" || plugin === null) {
    throw new Error("its default export must be an object with name, version, apiVersion, setup");
  }
  const { name, version, apiVersion, setup } = plugin;
  if (typeof name !== "string" || !NAME.test(name)) throw new Error(`its name is ${name}`);
  if (typeof version !== "string") throw new Error(`its version is ${version}, not a text`);
  if (apiVersion !== PLUGIN_API_VERSION) {
    const message = `its apiVersion is ${apiVersion}, and this worker has ${PLUGIN_API_VERSION}`;
    throw new Error(`${message}: use a version of the plugin that was made for it`);
  }
  if (typeof setup !== "function") throw new Error("its `setup` is not a function");
  return plugin as TrainingPlugin;
}

function checkAlgorithm(name: string, { config, plan }: PluginAlgorithm): void {
  if (typeof plan !== "function") throw new Error(`the algorithm ${name} has no plan`);
  if (typeof config !== "object" || config?.["type"] !== "object") {
    throw new Error(`the config of the algorithm ${name} must be a JSON Schema of type object`);
  }
}

function addTo<Item>(all: Map<string, Item>, kind: string, name: string, item: Item): void {
  if (!NAME.test(name)) throw new Error(`"${name}" is not a valid name of an ${kind}`);
  if (all.has(name)) throw taken(kind, name);
  all.set(name, item);
}

function taken(kind: string, name: string): Error {
  return new Error(`there is an ${kind} ${name} already`);
}

async function within(work: Promise<void>, limitMs: number): Promise<void> {
  const done = new AbortController();
  const late = delay(limitMs, undefined, { signal: done.signal, ref: false }).then(
    () => Promise.reject(new Error(`its setup takes longer than ${limitMs} ms`)),
    () => undefined,
  );
  try {
    await Promise.race([work, late]);
  } finally {
    done.abort();
  }
}
