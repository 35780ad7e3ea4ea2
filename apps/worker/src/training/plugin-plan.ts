import { basename, join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { PluginTraining } from "@heddle/contracts/training";
import { validate } from "@heddle/contracts/validation";
import type { Backend } from "@heddle/training/backend";
import type { PluginAlgorithm, PluginPlan } from "@heddle/training/plugins/plugin";
import { z } from "zod";
import type { LoadedPlugins } from "./load-plugins.ts";
import { environmentNamed, type TaskPlace } from "./ppo-plan.ts";
import { drawsFor } from "./seeds.ts";
import type { TrainingPlan } from "./training-plan.ts";
import { writeArtifact } from "./write-artifact.ts";

/** Draws of plugins begin apart from Heddle's own. */
const PLUGIN_DRAWS = 0x706c7567;

/** A job of a plugin's algorithm. Throws an AppError `invalid_value` with the field in `param`. */
export function pluginPlan(
  config: PluginTraining,
  plugins: LoadedPlugins,
  backend: Backend,
  { rank, tasks }: TaskPlace,
): TrainingPlan {
  const algorithm = plugins.algorithms.get(config.algorithm);
  if (!algorithm) throw unknown(config.algorithm, plugins);
  const plan = algorithm.plan(checkedConfig(algorithm, config.own), {
    ...{ rank, tasks, backend },
    environment: (name) => environmentNamed(plugins.environments, name)(),
    draws: (...uses) => drawsFor(config.seed, PLUGIN_DRAWS, ...uses),
  });
  return { ...plan, writeArtifacts: (directory, parameters) => leave(plan, directory, parameters) };
}

function unknown(name: string, { algorithms }: LoadedPlugins): AppError {
  const known = ["ppo", "weave", ...algorithms.keys()].join(", ");
  const message = `there is no algorithm "${name}": there are ${known}`;
  return new AppError("invalid_value", message, { param: "algorithm" });
}

/** Unknown fields are refused, also where the schema does not say so. */
function checkedConfig(
  { config }: PluginAlgorithm,
  own: PluginTraining["own"],
): Readonly<Record<string, unknown>> {
  const schema = z.fromJSONSchema({ additionalProperties: false, ...config });
  const checked = validate(z.object({ config: schema }), { config: own });
  return checked.config as Readonly<Record<string, unknown>>;
}

async function leave(
  plan: PluginPlan,
  directory: string,
  parameters: Parameters<NonNullable<PluginPlan["artifacts"]>>[0],
): Promise<void> {
  for (const [name, bytes] of Object.entries(plan.artifacts?.(parameters) ?? {})) {
    if (basename(name) !== name || name.startsWith(".")) {
      throw new AppError("invalid_value", `the plugin names an artifact "${name}": no plain name`);
    }
    await writeArtifact(join(directory, name), bytes);
  }
}
