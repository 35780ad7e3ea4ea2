import type { Executable, TensorSpec } from "../executable.ts";
import { Graph } from "../ir/graph.ts";
import type { Value } from "../ir/value.ts";
import type { Parameters } from "../parameter-client.ts";
import type { ParameterSpec, TrainingProgram } from "../training-program.ts";

/** A dense network on rows of numbers, for regression or classification. */
export interface SupervisedShape {
  readonly features: number;
  /** Numbers to predict, or classes. */
  readonly outputs: number;
  readonly task: "regression" | "classification";
  /** Units of each hidden layer; empty for a linear model. */
  readonly hidden: readonly number[];
}

/**
 * Data `features` [b, f] and `target` ([b, o] numbers, or [b] classes). The loss is half the mean
 * squared error, or the mean cross-entropy in nats.
 */
export function supervisedProgram(shape: SupervisedShape, batch: number): TrainingProgram {
  const { features, outputs, task, hidden } = shape;
  const sizes = [features, ...hidden, outputs];
  const parameters = sizes.slice(1).flatMap((size, layer): ParameterSpec[] => {
    const before = sizes[layer] ?? 1;
    const deviation = Math.sqrt((layer < hidden.length ? 2 : 1) / before);
    return [
      { name: `dense.${layer}.weight`, shape: [before, size], init: { kind: "normal", deviation } },
      { name: `dense.${layer}.bias`, shape: [size], init: { kind: "zeros" } },
    ];
  });
  const target: TensorSpec =
    task === "regression"
      ? { name: "target", shape: [batch, outputs], type: "f32" }
      : { name: "target", shape: [batch], type: "i32" };
  return {
    parameters,
    data: [{ name: "features", shape: [batch, features], type: "f32" }, target],
    build: (graph, inputs) => {
      const rows = dense(graph, inputs, hidden.length);
      const wanted = inputs["target"] as Value;
      if (task === "regression") {
        const loss = graph.mul(graph.mean(graph.square(graph.sub(rows, wanted))), 0.5);
        return { loss, metrics: {} };
      }
      const logs = graph.logSoftmax(rows);
      const chosen = graph.sum(graph.mul(logs, graph.oneHot(wanted, outputs)), [-1]);
      return { loss: graph.neg(graph.mean(chosen)), metrics: {} };
    },
  };
}

/** The trained network alone: `features` [batch, f] in, `output` [batch, o] out: numbers or logits. */
export function supervisedModel(
  shape: SupervisedShape,
  parameters: Parameters,
  batch: number,
): Executable {
  const graph = new Graph();
  const features: TensorSpec = { name: "features", shape: [batch, shape.features], type: "f32" };
  const inputs: Record<string, Value> = { features: graph.input(features.name, features.shape) };
  for (const { name, shape: size } of supervisedProgram(shape, batch).parameters) {
    inputs[name] = graph.constant(parameters[name] ?? [], size);
  }
  const value = dense(graph, inputs, shape.hidden.length);
  return { inputs: [features], outputs: [{ name: "output", value }] };
}

function dense(graph: Graph, inputs: Readonly<Record<string, Value>>, hidden: number): Value {
  let rows = inputs["features"] as Value;
  for (let layer = 0; layer <= hidden; layer++) {
    const weight = inputs[`dense.${layer}.weight`] as Value;
    rows = graph.add(graph.matmul(rows, weight), inputs[`dense.${layer}.bias`] as Value);
    if (layer < hidden) rows = graph.relu(rows);
  }
  return rows;
}
