import type { Graph } from "../ir/graph.ts";
import type { Value } from "../ir/value.ts";
import type { ParameterSpec } from "../training-program.ts";

/** The action space of a policy: one of `actions` choices, or a vector of that length. */
export interface PolicyShape {
  readonly observations: number;
  readonly actions: number;
  readonly continuous: boolean;
  /** Units of each of the two hidden layers. */
  readonly hidden: number;
}

const NETWORKS = ["actor", "critic"] as const;

/**
 * Separate actor and critic, two tanh layers each, with CleanRL's orthogonal initialization: gain
 * sqrt(2) inside, 0.01 for the policy's head, 1 for the value's. Continuous policies have a log
 * deviation for each action that does not depend on the observation.
 */
export function actorCriticParameters(policy: PolicyShape): ParameterSpec[] {
  const { observations, actions, hidden, continuous } = policy;
  const layers = NETWORKS.flatMap((network) => [
    ...layer(`${network}.0`, observations, hidden, Math.SQRT2),
    ...layer(`${network}.1`, hidden, hidden, Math.SQRT2),
    ...layer(
      `${network}.2`,
      hidden,
      network === "actor" ? actions : 1,
      network === "actor" ? 0.01 : 1,
    ),
  ]);
  const deviation: ParameterSpec = {
    name: "actor.log_deviation",
    shape: [actions],
    init: { kind: "zeros" },
  };
  return continuous ? [...layers, deviation] : layers;
}

function layer(name: string, inputs: number, outputs: number, gain: number): ParameterSpec[] {
  return [
    { name: `${name}.weight`, shape: [inputs, outputs], init: { kind: "orthogonal", gain } },
    { name: `${name}.bias`, shape: [outputs], init: { kind: "zeros" } },
  ];
}

/**
 * Log-probabilities [n, actions] of the choices, or the means of the action vector; and values [n].
 */
export interface PolicyOutputs {
  readonly head: Value;
  readonly value: Value;
}

export function actorCritic(
  graph: Graph,
  inputs: Readonly<Record<string, Value>>,
  observations: Value,
  policy: PolicyShape,
): PolicyOutputs {
  const [head, value] = NETWORKS.map((network) => {
    const dense = (index: number, input: Value) => {
      const { [`${network}.${index}.weight`]: weight, [`${network}.${index}.bias`]: bias } = inputs;
      return graph.add(graph.matmul(input, weight as Value), bias as Value);
    };
    return dense(2, graph.tanh(dense(1, graph.tanh(dense(0, observations)))));
  }) as [Value, Value];
  return {
    head: policy.continuous ? head : graph.logSoftmax(head),
    value: graph.reshape(value, [-1]),
  };
}
