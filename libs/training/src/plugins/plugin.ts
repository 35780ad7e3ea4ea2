import type { Random } from "@heddle/base/random";
import type { Backend } from "../backend.ts";
import type { Environment } from "../environments/environment.ts";
import type { Parameters } from "../parameter-client.ts";
import type { AlgorithmPlan } from "../training-loop.ts";

/** A training algorithm: the schema of its config, and the plan for a config. */
export interface PluginAlgorithm {
  /**
   * A JSON Schema (draft 2020-12) of an object with the algorithm's own fields. The common fields
   * are not part of it: `seed`, `parameter_servers`, `consistency`, `staleness`, `straggler_ms`,
   * `compression`, `backend`, `device`. Its defaults are filled in; unknown fields are refused.
   */
  readonly config: Readonly<Record<string, unknown>>;
  /** `config` is valid by the schema, with defaults filled in. */
  plan(config: Readonly<Record<string, unknown>>, context: PlanContext): PluginPlan;
}

/** The circumstances in which a plan will run. */
export interface PlanContext {
  readonly rank: number;
  /** Workers of the job. */
  readonly tasks: number;
  readonly backend: Backend;
  /** A built-in environment or one of any plugin. Throws where the name is unknown. */
  environment(name: string): Environment;
  /** Independent random numbers for each use of the job's seed, as by rank and round. */
  draws(...uses: readonly number[]): Random;
}

export interface PluginPlan extends AlgorithmPlan {
  /** Files that a successful job leaves, by name; none where absent. */
  artifacts?(parameters: Parameters): Readonly<Record<string, Uint8Array>>;
}
