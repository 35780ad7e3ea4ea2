import type { Random } from "@heddle/base/random";
import type { Backend } from "../backend.ts";
import type { Environment } from "../environments/environment.ts";
import type { Parameters } from "../parameter-client.ts";
import type { AlgorithmPlan } from "../training-loop.ts";
import type { PluginToolkit } from "./toolkit.ts";

/** What a plugin must say that it was written for. */
export const PLUGIN_API_VERSION = 1;

/**
 * The default export of a plugin's ES module. It needs to import nothing: all that it can use comes
 * with `setup`.
 */
export interface TrainingPlugin {
  /** Letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  readonly version: string;
  readonly apiVersion: number;
  /** Adds what the plugin has; called once in each trainer's process, before its job begins. */
  setup(api: TrainingPluginApi): void | Promise<void>;
}

export interface TrainingPluginApi {
  readonly environments: {
    /** An environment that jobs name in `config.environment`. Throws where the name is taken. */
    add(name: string, make: () => Environment): void;
  };
  readonly algorithms: {
    /** An algorithm that jobs name in `algorithm`. Throws where the name is taken. */
    add(name: string, algorithm: PluginAlgorithm): void;
  };
  readonly toolkit: PluginToolkit;
}

/** A training algorithm: its config's form, and what it makes of a config. */
export interface PluginAlgorithm {
  /**
   * A JSON Schema (draft 2020-12) of an object: the algorithm's own fields, without those that all
   * jobs have (`seed`, `parameter_servers`, `consistency`, `staleness`, `straggler_ms`,
   * `compression`, `backend`, `device`). Defaults in it are filled in; fields that it does not name
   * are refused.
   */
  readonly config: Readonly<Record<string, unknown>>;
  /** `config` is what its schema has accepted, defaults filled in. */
  plan(config: Readonly<Record<string, unknown>>, context: PlanContext): PluginPlan;
}

/** Where a plan will run. */
export interface PlanContext {
  readonly rank: number;
  /** Workers of the job. */
  readonly tasks: number;
  readonly backend: Backend;
  /** An environment of Heddle's own or of any plugin. Throws where there is none of that name. */
  environment(name: string): Environment;
  /** Draws of their own for each use of the job's seed, as by rank and round. */
  draws(...uses: readonly number[]): Random;
}

export interface PluginPlan extends AlgorithmPlan {
  /** Files that a job leaves when it has succeeded, by name; none where absent. */
  artifacts?(parameters: Parameters): Readonly<Record<string, Uint8Array>>;
}
