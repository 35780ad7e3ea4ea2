import type { Graph } from "../ir/graph.ts";
import type { Value } from "../ir/value.ts";

/**
 * How gradients change parameters.
 * - `sgd` as in PyTorch: v = momentum v + g; p -= lr v (with `nesterov`: p -= lr (g + momentum v)).
 * - `adam` after Kingma and Ba, 2015.
 * - `adamw` after Loshchilov and Hutter, 2019: the decay is decoupled from the gradient.
 */
export type Optimizer =
  | { readonly kind: "sgd"; readonly momentum: number; readonly nesterov: boolean }
  | {
      readonly kind: "adam" | "adamw";
      readonly beta1: number;
      readonly beta2: number;
      readonly epsilon: number;
      /** Zero for `adam`. */
      readonly weightDecay: number;
    };

/** The published settings of Adam. */
export const ADAM = {
  kind: "adam",
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0,
} as const satisfies Optimizer;

/** Names of the optimizer's state tensors for a parameter, each of its shape and initially zero. */
export function optimizerSlots(optimizer: Optimizer): readonly string[] {
  if (optimizer.kind !== "sgd") return ["first_moment", "second_moment"];
  return optimizer.momentum === 0 ? [] : ["velocity"];
}

/** A parameter, its gradient and its optimizer state, in the order of the slots. */
export interface Update {
  readonly parameter: Value;
  readonly gradient: Value;
  readonly slots: readonly Value[];
}

/** Scalars: the learning rate, and the number of this update, 1 for the first. */
export interface UpdateTime {
  readonly learningRate: Value;
  readonly step: Value;
}

/** Adds one update to the graph; returns the new parameter and slots. */
export function applyOptimizer(
  graph: Graph,
  optimizer: Optimizer,
  update: Update,
  time: UpdateTime,
): { readonly parameter: Value; readonly slots: readonly Value[] } {
  if (optimizer.kind === "sgd") return applySgd(graph, optimizer, update, time);
  return applyAdam(graph, optimizer, update, time);
}

function applySgd(
  graph: Graph,
  { momentum, nesterov }: Extract<Optimizer, { kind: "sgd" }>,
  { parameter, gradient, slots }: Update,
  { learningRate }: UpdateTime,
) {
  const [velocity] = slots;
  if (!velocity) {
    return { parameter: graph.sub(parameter, graph.mul(gradient, learningRate)), slots: [] };
  }
  const next = graph.add(graph.mul(velocity, momentum), gradient);
  const direction = nesterov ? graph.add(gradient, graph.mul(next, momentum)) : next;
  return { parameter: graph.sub(parameter, graph.mul(direction, learningRate)), slots: [next] };
}

function applyAdam(
  graph: Graph,
  { beta1, beta2, epsilon, weightDecay }: Extract<Optimizer, { kind: "adam" | "adamw" }>,
  { parameter, gradient, slots }: Update,
  { learningRate, step }: UpdateTime,
) {
  const [first, second] = slots as [Value, Value];
  const power = (base: number) => graph.exp(graph.mul(step, Math.log(base)));
  const firstNext = graph.add(graph.mul(first, beta1), graph.mul(gradient, 1 - beta1));
  const squared = graph.mul(graph.square(gradient), 1 - beta2);
  const secondNext = graph.add(graph.mul(second, beta2), squared);
  const rate = graph.div(learningRate, graph.sub(1, power(beta1)));
  const scale = graph.sqrt(graph.sub(1, power(beta2)));
  const spread = graph.add(graph.div(graph.sqrt(secondNext), scale), epsilon);
  const moved = graph.sub(parameter, graph.div(graph.mul(firstNext, rate), spread));
  if (weightDecay === 0) return { parameter: moved, slots: [firstNext, secondNext] };
  const decayed = graph.mul(parameter, graph.mul(learningRate, weightDecay));
  return { parameter: graph.sub(moved, decayed), slots: [firstNext, secondNext] };
}

/**
 * Scales all gradients so that their common Euclidean norm is at most `maxNorm`, as PyTorch's
 * clip_grad_norm_ does. Returns the norm before, too.
 */
export function clipByGlobalNorm(
  graph: Graph,
  gradients: readonly Value[],
  maxNorm: number,
): { readonly gradients: Value[]; readonly norm: Value } {
  const squares = gradients.map((gradient) => graph.sum(graph.square(gradient)));
  const total = squares.reduce((sum, square) => graph.add(sum, square));
  const norm = graph.sqrt(total);
  const scale = graph.min(graph.div(maxNorm, graph.add(norm, 1e-6)), 1);
  return { gradients: gradients.map((gradient) => graph.mul(gradient, scale)), norm };
}
