import type { Executable, TensorSpec } from "../executable.ts";
import { Graph } from "../ir/graph.ts";
import type { Value } from "../ir/value.ts";
import type { Parameters } from "../parameter-client.ts";
import type { ProgramOutputs, TrainingProgram } from "../training-program.ts";
import { actorCritic, actorCriticParameters, type PolicyShape } from "./actor-critic.ts";
import { OBSERVATIONS } from "./experience-normalizer.ts";
import { NORMALIZED_LIMIT, type Scale, scaleIn } from "./running-moments.ts";

/** The terms of PPO's loss, under CleanRL's names. */
export interface PpoLoss {
  readonly clip_coef: number;
  /** Whether the value's error is clipped as the policy's ratio is. */
  readonly clip_vloss: boolean;
  readonly norm_adv: boolean;
  readonly ent_coef: number;
  readonly vf_coef: number;
}

const LOG_TWO_PI = Math.log(2 * Math.PI);

/**
 * Proximal Policy Optimization (Schulman et al., 2017) as CleanRL computes it, over a minibatch.
 *
 * - Data: `observation` [b, o] and `action` ([b] indices or [b, a] numbers).
 * - Data of the rollout: `log_probability`, `advantage`, `return` and `value`, each [b].
 * - Metrics: `policy_loss`, `value_loss`, `entropy`, `approximate_kl`, `clip_fraction`.
 */
export function ppoProgram(policy: PolicyShape, batch: number, loss: PpoLoss): TrainingProgram {
  return {
    parameters: actorCriticParameters(policy),
    data: ppoData(policy, batch),
    build: (graph, inputs) => ppoLoss(graph, inputs, policy, loss),
  };
}

function ppoData({ observations, actions, continuous }: PolicyShape, batch: number): TensorSpec[] {
  const action: TensorSpec = continuous
    ? { name: "action", shape: [batch, actions], type: "f32" }
    : { name: "action", shape: [batch], type: "i32" };
  const scalars = ["log_probability", "advantage", "return", "value"];
  return [
    { name: "observation", shape: [batch, observations], type: "f32" },
    action,
    ...scalars.map((name): TensorSpec => ({ name, shape: [batch], type: "f32" })),
  ];
}

/** Outputs `head` [n, actions] and `value` [n] for a batch of observations. */
export function policyForward(policy: PolicyShape, batch: number): Executable {
  const graph = new Graph();
  const observation: TensorSpec = {
    name: "observation",
    shape: [batch, policy.observations],
    type: "f32",
  };
  const specs: TensorSpec[] = [
    ...actorCriticParameters(policy)
      .filter(({ name }) => name !== "actor.log_deviation")
      .map(({ name, shape }) => ({ name, shape, type: "f32" as const })),
    observation,
  ];
  const inputs: Record<string, Value> = {};
  for (const { name, shape } of specs) inputs[name] = graph.input(name, shape);
  const { head, value } = actorCritic(graph, inputs, inputs["observation"] as Value, policy);
  return {
    inputs: specs,
    outputs: [
      { name: "head", value: head },
      { name: "value", value },
    ],
  };
}

/**
 * The trained policy alone, with its parameters as constants: `observation` in, `head` and `value`
 * out. It includes the normalization, so it takes raw observations.
 */
export function policyModel(
  policy: PolicyShape,
  parameters: Parameters,
  batch: number,
): Executable {
  const graph = new Graph();
  const observation: TensorSpec = {
    name: "observation",
    shape: [batch, policy.observations],
    type: "f32",
  };
  const inputs: Record<string, Value> = {};
  for (const { name, shape } of actorCriticParameters(policy)) {
    inputs[name] = graph.constant(parameters[name] ?? [], shape);
  }
  const raw = graph.input(observation.name, observation.shape);
  const scale = scaleIn(parameters, OBSERVATIONS);
  const seen = scale ? normalizedObservation(graph, raw, scale) : raw;
  const { head, value } = actorCritic(graph, inputs, seen, policy);
  return {
    inputs: [observation],
    outputs: [
      { name: "head", value: head },
      { name: "value", value },
    ],
  };
}

function normalizedObservation(graph: Graph, raw: Value, scale: Scale): Value {
  const constant = (numbers: Float64Array) =>
    graph.constant(Float32Array.from(numbers), [numbers.length]);
  const centred = graph.sub(raw, constant(scale.mean));
  const scaled = graph.mul(centred, constant(scale.inverseDeviation));
  return graph.clip(scaled, -NORMALIZED_LIMIT, NORMALIZED_LIMIT);
}

function ppoLoss(
  graph: Graph,
  inputs: Readonly<Record<string, Value>>,
  policy: PolicyShape,
  options: PpoLoss,
): ProgramOutputs {
  const data = (name: string) => inputs[name] as Value;
  const { head, value } = actorCritic(graph, inputs, data("observation"), policy);
  const { logProbability, entropy } = policy.continuous
    ? gaussian(graph, head, data("action"), data("actor.log_deviation"))
    : categorical(graph, head, data("action"), policy.actions);
  const difference = graph.sub(logProbability, data("log_probability"));
  const ratio = graph.exp(difference);
  const advantage = options.norm_adv ? normalised(graph, data("advantage")) : data("advantage");
  const low = 1 - options.clip_coef;
  const high = 1 + options.clip_coef;
  const clipped = graph.mul(graph.clip(ratio, low, high), advantage);
  const policyLoss = graph.neg(graph.mean(graph.min(graph.mul(ratio, advantage), clipped)));
  const valueLoss = valueError(graph, value, data("value"), data("return"), options);
  const bonus = graph.mul(entropy, options.ent_coef);
  const loss = graph.add(graph.sub(policyLoss, bonus), graph.mul(valueLoss, options.vf_coef));
  const outside = graph.less(options.clip_coef, graph.abs(graph.sub(ratio, 1)));
  return {
    loss,
    metrics: {
      policy_loss: policyLoss,
      value_loss: valueLoss,
      entropy,
      // Schulman's low-variance estimate: (r - 1) - log r.
      approximate_kl: graph.mean(graph.sub(graph.sub(ratio, 1), difference)),
      clip_fraction: graph.mean(outside),
    },
  };
}

interface Judged {
  readonly logProbability: Value;
  /** The mean over the batch. */
  readonly entropy: Value;
}

function categorical(graph: Graph, logs: Value, action: Value, actions: number): Judged {
  const chosen = graph.mul(logs, graph.oneHot(action, actions));
  return {
    logProbability: graph.sum(chosen, [-1]),
    entropy: graph.neg(graph.mean(graph.sum(graph.mul(graph.exp(logs), logs), [-1]))),
  };
}

function gaussian(graph: Graph, mean: Value, action: Value, logDeviation: Value): Judged {
  const scaled = graph.div(graph.sub(action, mean), graph.exp(logDeviation));
  const halfSquares = graph.mul(graph.square(scaled), -0.5);
  const density = graph.sub(graph.sub(halfSquares, logDeviation), LOG_TWO_PI / 2);
  return {
    logProbability: graph.sum(density, [-1]),
    entropy: graph.sum(graph.add(logDeviation, 0.5 + LOG_TWO_PI / 2)),
  };
}

/** To mean 0 and deviation 1 over the batch (n - 1 in the variance, as in PyTorch). */
function normalised(graph: Graph, advantage: Value): Value {
  const centred = graph.sub(advantage, graph.mean(advantage));
  const count = Math.max(1, (advantage.shape[0] ?? 1) - 1);
  const variance = graph.mul(graph.sum(graph.square(centred)), 1 / count);
  return graph.div(centred, graph.add(graph.sqrt(variance), 1e-8));
}

function valueError(
  graph: Graph,
  value: Value,
  old: Value,
  target: Value,
  { clip_vloss, clip_coef }: PpoLoss,
): Value {
  const plain = graph.square(graph.sub(value, target));
  if (!clip_vloss) return graph.mul(graph.mean(plain), 0.5);
  const near = graph.add(old, graph.clip(graph.sub(value, old), -clip_coef, clip_coef));
  const worse = graph.max(plain, graph.square(graph.sub(near, target)));
  return graph.mul(graph.mean(worse), 0.5);
}
