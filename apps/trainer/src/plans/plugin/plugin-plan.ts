import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { PluginTraining } from "@heddle/contracts/training";
import { validate } from "@heddle/contracts/validation";
import type { Backend } from "@heddle/training/backend";
import type { PluginAlgorithm, PluginPlan } from "@heddle/training/plugins/plugin";
import type { TrainingLoop } from "@heddle/training/training-loop";
import { z } from "zod";
import { writeArtifact } from "../../data/write-artifact.ts";
import { environmentNamed, type TaskPlace } from "../ppo/ppo-plan.ts";
import { drawsFor } from "../seeds.ts";
import type { TrainingPlan } from "../training-plan.ts";
import { checkArtifacts, checkPluginPlan, checkReport } from "./check-plan.ts";
import type { LoadedPlugins } from "./load-plugins.ts";
import { PluginError, pluginError } from "./plugin-error.ts";

/** Separates the random numbers of plugins from Heddle's own. */
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
  const subject = `the plugin's algorithm ${config.algorithm}`;
  const own = checkedConfig(algorithm, config.own);
  const plan = attributed(subject, () =>
    algorithm.plan(own, {
      rank,
      tasks,
      backend,
      environment: (name) => environmentNamed(plugins.environments, name)(),
      draws: (...uses) => drawsFor(config.seed, PLUGIN_DRAWS, ...uses),
    }),
  );
  checkPluginPlan(config.algorithm, plan);
  const { parameters, servers, rounds, pushesPerRound, fragments } = plan;
  return {
    parameters,
    servers,
    rounds,
    pushesPerRound,
    fragments,
    stepAfter: (round) => stepAfter(subject, plan, round),
    run: (loop) => runChecked(subject, plan, loop),
    writeArtifacts: (directory, end) => leave(subject, plan, directory, end),
  };
}

/** Runs the plugin's loop and attributes its faults to it. A loop that does nothing has failed. */
async function runChecked(subject: string, plan: PluginPlan, loop: TrainingLoop): Promise<void> {
  let reports = 0;
  const report: TrainingLoop["report"] = (round) => {
    checkReport(subject, round, plan.rounds);
    reports++;
    return loop.report(round);
  };
  try {
    await plan.run({ ...loop, report });
  } catch (error) {
    throw pluginError(subject, error);
  }
  if (reports > 0 || loop.done >= plan.rounds) return;
  const rounds = `the ${plan.rounds - loop.done} rounds that were left`;
  throw new PluginError(
    `${subject} ended its \`run\` without one of ${rounds}: it must pull, push and \`report\` each`,
  );
}

function attributed<Result>(subject: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw pluginError(subject, error);
  }
}

function unknown(name: string, { algorithms }: LoadedPlugins): AppError {
  const known = ["ppo", "weave", ...algorithms.keys()].join(", ");
  const message = `there is no algorithm "${name}": there are ${known}`;
  return new AppError("invalid_value", message, { param: "algorithm" });
}

/** Unknown fields are refused, even where the schema allows them. */
function checkedConfig(
  { config }: PluginAlgorithm,
  own: PluginTraining["own"],
): Readonly<Record<string, unknown>> {
  const schema = z.fromJSONSchema({ additionalProperties: false, ...config });
  const checked = validate(z.object({ config: schema }), { config: own });
  return checked.config as Readonly<Record<string, unknown>>;
}

async function leave(
  subject: string,
  plan: PluginPlan,
  directory: string,
  parameters: Parameters<NonNullable<PluginPlan["artifacts"]>>[0],
): Promise<void> {
  const artifacts: unknown = attributed(subject, () => plan.artifacts?.(parameters)) ?? {};
  checkArtifacts(subject, artifacts);
  for (const [name, bytes] of Object.entries(artifacts)) {
    await writeArtifact(join(directory, name), bytes);
  }
}

function stepAfter(subject: string, plan: PluginPlan, round: number): number {
  const step: unknown = attributed(subject, () => plan.stepAfter(round));
  if (typeof step === "number" && Number.isFinite(step)) return step;
  throw new PluginError(`${subject} gives ${String(step)} as its \`stepAfter\` ${round} rounds`);
}
