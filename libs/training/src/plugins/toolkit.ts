import { VectorEnvironment } from "../environments/vector-environment.ts";
import { Graph } from "../ir/graph.ts";
import { emitModel } from "../onnx/emit-model.ts";
import { ADAM } from "../optimizers/optimizer.ts";
import { actorCriticParameters } from "../ppo/actor-critic.ts";
import { policyForward, policyModel } from "../ppo/ppo-program.ts";
import { policyFor } from "../ppo/ppo-worker.ts";
import { gradientName, gradientsOf, localStepsOf, nextName } from "../training-program.ts";

/** The parts of which a plugin builds its algorithm: programs, policies, environments, models. */
export const PLUGIN_TOOLKIT = {
  Graph,
  gradientsOf,
  gradientName,
  localStepsOf,
  nextName,
  emitModel,
  ADAM,
  policyFor,
  policyForward,
  policyModel,
  actorCriticParameters,
  VectorEnvironment,
} as const;

export type PluginToolkit = typeof PLUGIN_TOOLKIT;
