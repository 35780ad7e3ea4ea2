import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { PpoTraining } from "@heddle/contracts/training";
import type { Backend } from "@heddle/training/backend";
import { ENVIRONMENTS, type MakeEnvironment } from "@heddle/training/environments/environments";
import { emitModel } from "@heddle/training/onnx/emit-model";
import { policyModel } from "@heddle/training/ppo/ppo-program";
import { PPO_ADAM } from "@heddle/training/ppo/ppo-updater";
import {
  type PpoProgress,
  policyFor,
  ppoIterations,
  ppoParameters,
  runPpoWorker,
} from "@heddle/training/ppo/ppo-worker";
import type { RoundReport } from "@heddle/training/training-loop";
import { writeArtifact } from "../../data/write-artifact.ts";
import { guardedEnvironment } from "../plugin/plugin-error.ts";
import { drawsFor } from "../seeds.ts";
import type { TrainingPlan } from "../training-plan.ts";

/** Which of a job's tasks this is. */
export interface TaskPlace {
  readonly rank: number;
  readonly tasks: number;
}

/**
 * A `ppo` job. A single task runs Adam itself and sends the servers its displacement; several tasks
 * send the gradients of each minibatch.
 */
export function ppoPlan(
  config: PpoTraining,
  environments: Environments,
  backend: Backend,
  place: TaskPlace,
): TrainingPlan {
  const { environment } = config;
  const make = environmentNamed(environments, environment);
  const isBuiltIn = ENVIRONMENTS.get(environment) === make;
  const makeEnvironment = isBuiltIn ? make : guardedEnvironment(environment, make);
  const policy = policyFor(makeEnvironment(), config.hidden);
  const { tasks, rank } = place;
  const isSole = tasks === 1;
  const rounds = ppoIterations(config, tasks);
  return {
    rounds,
    stepAfter: (round) => round * config.num_envs * config.num_steps * tasks,
    parameters: ppoParameters(makeEnvironment(), config),
    servers: isSole
      ? { optimizer: { kind: "sgd", momentum: 0, nesterov: false }, learningRate: 1 }
      : { optimizer: PPO_ADAM, learningRate: 1, maxGradientNorm: config.max_grad_norm },
    pushesPerRound: isSole ? 1 : config.update_epochs * config.num_minibatches,
    run: (loop) =>
      runPpoWorker({
        config,
        makeEnvironment,
        backend,
        workers: tasks,
        client: loop.client,
        parameters: loop.parameters,
        state: loop.state,
        done: loop.done,
        signal: loop.signal,
        draws: (iteration) => drawsFor(config.seed, rank, iteration),
        report: (progress) => loop.report(reportOf(progress, config)),
      }),
    writeArtifacts: (directory, parameters) =>
      writeArtifact(join(directory, "policy.onnx"), emitModel(policyModel(policy, parameters, 1))),
  };
}

function reportOf(progress: PpoProgress, config: PpoTraining): RoundReport {
  const { iteration, timesteps, episodeReturn, metrics, state } = progress;
  const { loss = Number.NaN, ...others } = metrics;
  return {
    round: iteration,
    step: timesteps,
    loss,
    reward: episodeReturn,
    reached:
      config.target_return !== undefined &&
      progress.episodes >= RETURN_EPISODES &&
      (episodeReturn ?? Number.NEGATIVE_INFINITY) >= config.target_return,
    metrics: others,
    state,
  };
}

/** The fewest episodes whose mean return may end a job. */
const RETURN_EPISODES = 20;

/** Environments by name: built-in ones and those of plugins. */
type Environments = ReadonlyMap<string, MakeEnvironment>;

/** Throws an AppError `invalid_value` that lists the known ones. */
export function environmentNamed(environments: Environments, name: string): MakeEnvironment {
  const make = environments.get(name);
  if (make) return make;
  const known = [...environments.keys()].join(", ");
  throw new AppError("invalid_value", `there is no environment "${name}": there are ${known}`, {
    param: "config.environment",
  });
}
