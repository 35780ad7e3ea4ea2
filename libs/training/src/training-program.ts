import { gradients } from "./autodiff/gradient.ts";
import type { Executable, NamedOutput, TensorSpec } from "./executable.ts";
import { Graph } from "./ir/graph.ts";
import { elementCount, type Shape, type Value } from "./ir/value.ts";
import {
  applyOptimizer,
  clipByGlobalNorm,
  type Optimizer,
  optimizerSlots,
  type UpdateTime,
} from "./optimizers/optimizer.ts";
import {
  joinGroup,
  splitGroup,
  type UpdateGroup,
  updateGroups,
} from "./optimizers/update-groups.ts";

/** The initial value of a parameter; random numbers come from the job's seed. */
export type Initializer =
  | { readonly kind: "zeros" }
  | { readonly kind: "ones" }
  | { readonly kind: "normal"; readonly deviation: number }
  /** Orthogonal rows or columns times a gain (Saxe et al., 2014). */
  | { readonly kind: "orthogonal"; readonly gain: number };

export interface ParameterSpec {
  readonly name: string;
  readonly shape: Shape;
  readonly init: Initializer;
}

/** A model and its loss; what a training job computes. */
export interface TrainingProgram {
  readonly parameters: readonly ParameterSpec[];
  /** The data of one step. */
  readonly data: readonly TensorSpec[];
  /** Adds loss and metrics (scalars) to the graph; `inputs` has every parameter and data tensor. */
  build(graph: Graph, inputs: Readonly<Record<string, Value>>): ProgramOutputs;
}

export interface ProgramOutputs {
  readonly loss: Value;
  readonly metrics: Readonly<Record<string, Value>>;
}

/** How one step changes the parameters. */
export interface StepOptions {
  readonly optimizer: Optimizer;
  /** Absent: gradients are not clipped. */
  readonly maxGradientNorm?: number | undefined;
}

/** Names in executables: a prefix marks what belongs to a parameter. */
export const gradientName = (parameter: string): string => `grad.${parameter}`;
export const nextName = (input: string): string => `next.${input}`;
const slotName = (parameter: string, slot: string): string => `${slot}.${parameter}`;

/** Outputs: `loss`, the metrics by name, and `grad.NAME` for each parameter. */
export function gradientsOf(program: TrainingProgram): Executable {
  const { graph, inputs, specs } = open(program);
  const { loss, metrics } = program.build(graph, inputs);
  const slopes = gradients(graph, loss, valuesOf(program, inputs));
  const named = program.parameters.map(({ name }, i) => output(gradientName(name), slopes[i]));
  return { inputs: specs, outputs: [output("loss", loss), ...metricOutputs(metrics), ...named] };
}

/**
 * One step of the optimizer. Inputs besides parameters and data: `SLOT.GROUP`, and the scalars
 * `learning_rate` and `step` (the number of updates before). Outputs: `loss`, the metrics,
 * `gradient_norm`, and `next.INPUT` for each parameter, slot and `step`.
 */
export function stepOf(program: TrainingProgram, options: StepOptions): Executable {
  const { graph, inputs, specs } = open(program);
  const slots = slotSpecs(program, options.optimizer);
  for (const { name, shape } of slots) inputs[name] = graph.input(name, shape);
  const [learningRate, step] = [graph.input("learning_rate", []), graph.input("step", [])];
  const { loss, metrics } = program.build(graph, inputs);
  const groups = updateGroups(program.parameters);
  const slopes = gradientsByGroup(graph, groups, loss, inputs);
  const limit = options.maxGradientNorm ?? Number.POSITIVE_INFINITY;
  const clipped = clipByGlobalNorm(graph, slopes, Math.min(limit, 3e38));
  const used = options.maxGradientNorm === undefined ? slopes : clipped.gradients;
  const next = graph.add(step, 1);
  const time = { learningRate, step: next };
  const updated = groups.flatMap((group, i) =>
    updateGroup(graph, options.optimizer, group, { inputs, time, gradient: used[i] as Value }),
  );
  const scalars = ["learning_rate", "step"].map(
    (name) => ({ name, shape: [], type: "f32" }) as const,
  );
  return {
    inputs: [...specs, ...slots, ...scalars],
    outputs: [
      output("loss", loss),
      ...metricOutputs(metrics),
      output("gradient_norm", clipped.norm),
      ...updated,
      output(nextName("step"), next),
    ],
  };
}

/** The joined gradients of each group's members. */
function gradientsByGroup(
  graph: Graph,
  groups: readonly UpdateGroup[],
  loss: Value,
  inputs: Readonly<Record<string, Value>>,
): Value[] {
  const members = groups.map((group) => group.members.map(({ name }) => inputs[name] as Value));
  const slopes = gradients(graph, loss, members.flat());
  return groups.map((group) => joinGroup(graph, group, slopes.splice(0, group.members.length)));
}

interface GroupUpdate {
  readonly inputs: Readonly<Record<string, Value>>;
  readonly gradient: Value;
  readonly time: UpdateTime;
}

function updateGroup(
  graph: Graph,
  optimizer: Optimizer,
  group: UpdateGroup,
  { inputs, gradient, time }: GroupUpdate,
): NamedOutput[] {
  const names = optimizerSlots(optimizer).map((slot) => slotName(group.name, slot));
  const values = group.members.map(({ name }) => inputs[name] as Value);
  const update = {
    parameter: joinGroup(graph, group, values),
    gradient,
    slots: names.map((slot) => inputs[slot] as Value),
  };
  const after = applyOptimizer(graph, optimizer, update, time);
  const pieces = splitGroup(graph, group, after.parameter);
  return [
    ...group.members.map(({ name }, i) => output(nextName(name), pieces[i])),
    ...names.map((slot, at) => output(nextName(slot), after.slots[at])),
  ];
}

/**
 * `steps` steps in one run: data and `learning_rate` are stacked, parameters and slots are carried.
 */
export function localStepsOf(
  program: TrainingProgram,
  options: StepOptions,
  steps: number,
): Executable {
  const once = stepOf(program, options);
  const outputs = new Set(once.outputs.map(({ name }) => name));
  const carried = once.inputs.flatMap(({ name }) =>
    outputs.has(nextName(name)) ? ([[name, nextName(name)]] as const) : [],
  );
  const stacked = new Set([...program.data.map(({ name }) => name), "learning_rate"]);
  return { ...once, loop: { steps, carried: new Map(carried), stacked } };
}

/** The optimizer's state tensors for all parameters; small parameters share theirs. */
function slotSpecs(program: TrainingProgram, optimizer: Optimizer): TensorSpec[] {
  return updateGroups(program.parameters).flatMap(({ name, shape }) =>
    optimizerSlots(optimizer).map((slot) => ({ name: slotName(name, slot), shape, type: "f32" })),
  );
}

/** The optimizer's initial state: zeros for each slot, and the scalar `step`. */
export function zeroState(
  program: TrainingProgram,
  optimizer: Optimizer,
): Record<string, Float32Array> {
  const slots = slotSpecs(program, optimizer).map(
    ({ name, shape }) => [name, new Float32Array(elementCount(shape))] as const,
  );
  return Object.fromEntries([...slots, ["step", new Float32Array(1)]]);
}

function open(program: TrainingProgram) {
  const graph = new Graph();
  const specs: TensorSpec[] = [
    ...program.parameters.map(({ name, shape }) => ({ name, shape, type: "f32" }) as const),
    ...program.data,
  ];
  const inputs: Record<string, Value> = {};
  for (const { name, shape, type } of specs) inputs[name] = graph.input(name, shape, type);
  return { graph, inputs, specs };
}

function valuesOf(program: TrainingProgram, inputs: Readonly<Record<string, Value>>): Value[] {
  return program.parameters.map(({ name }) => inputs[name] as Value);
}

function metricOutputs(metrics: Readonly<Record<string, Value>>): NamedOutput[] {
  return Object.entries(metrics).map(([name, value]) => output(name, value));
}

function output(name: string, value: Value | undefined): NamedOutput {
  if (!value) throw new Error(`the output ${name} has no value`);
  return { name, value };
}
