import type { Environment } from "@heddle/training/environments/environment";
import type { PluginAlgorithm } from "@heddle/training/plugins/plugin";
import type { PluginToolkit } from "@heddle/training/plugins/toolkit";
import type { z } from "zod";
import type { PluginBlock } from "./points/blocks.ts";
import type { CommandVerb } from "./points/commands.ts";
import type { PluginEngine } from "./points/engines.ts";
import type { EventSink } from "./points/events.ts";
import type { PluginExecutor } from "./points/executors.ts";
import type { AdmissionRule, FilterRule, ScoreRule } from "./points/jobs.ts";
import type { ConsolePanel } from "./points/panels.ts";
import type { PluginRoute } from "./points/routes.ts";

/** The API version that a plugin must declare. */
export const PLUGIN_API_VERSION = 1;

/** What a plugin may add. */
export const CAPABILITIES = [
  "routes",
  "admission",
  "scheduler",
  "eventSinks",
  "algorithms",
  "environments",
  "commands",
  "blocks",
  "console",
  "engines",
  "executors",
] as const;

export type Capability = (typeof CAPABILITIES)[number];

/** The capabilities of a plugin that declares none. */
export const TRAINING_CAPABILITIES: readonly Capability[] = ["algorithms", "environments"];

/** The default export of a plugin's ES module. */
export interface Plugin<Config = unknown> {
  /** Letters, digits, `.`, `_` and `-`; the routes lie under it. */
  readonly name: string;
  readonly version: string;
  readonly apiVersion: number;
  /** The schema of the settings in the list of plugins; a plugin without one takes none. */
  readonly config?: z.ZodType<Config>;
  /** What `setup` adds; anything else is refused. By default algorithms and environments. */
  readonly capabilities?: readonly Capability[];
  /** Called once in each process that loads the plugin, before the process serves anything. */
  setup(api: PluginApi<Config>): void | Promise<void>;
}

/** The process that loads the plugin; in each, only what belongs there is used. */
export type PluginHostKind = "master" | "worker" | "trainer" | "cli";

export interface PluginApi<Config = unknown> {
  readonly host: PluginHostKind;
  /** The settings, as the plugin's schema parses them. */
  readonly config: Config;
  /** A line in the log of the process. */
  log(message: string): void;
  readonly routes: {
    add<Query extends z.ZodObject, Body extends z.ZodObject>(route: PluginRoute<Query, Body>): void;
  };
  readonly admission: { add(rule: AdmissionRule): void };
  readonly scheduler: { filter(rule: FilterRule): void; score(rule: ScoreRule): void };
  readonly eventSinks: { add(sink: EventSink): void };
  readonly environments: {
    /** An environment that jobs name in `config.environment`. */
    add(name: string, make: () => Environment): void;
  };
  readonly algorithms: {
    /** An algorithm that jobs name in `algorithm`. */
    add(name: string, algorithm: PluginAlgorithm): void;
  };
  readonly commands: { add(verb: CommandVerb): void };
  readonly blocks: {
    /** A kind of step of pipelines. */
    add<Config extends z.ZodObject, Resume extends z.ZodType>(
      block: PluginBlock<Config, Resume>,
    ): void;
  };
  readonly console: { add(panel: ConsolePanel): void };
  readonly engines: { add(engine: PluginEngine): void };
  readonly executors: { add(executor: PluginExecutor): void };
  /** For algorithms: only in trainers. */
  readonly toolkit: PluginToolkit;
}
