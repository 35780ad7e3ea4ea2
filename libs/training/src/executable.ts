import type { ElementType, Shape, Value } from "./ir/value.ts";

/** A tensor's name, type and shape, as an input or output of a backend. */
export interface TensorSpec {
  readonly name: string;
  readonly shape: Shape;
  readonly type: ElementType;
}

/** A graph's output and its name; no input has that name. */
export interface NamedOutput {
  readonly name: string;
  readonly value: Value;
}

/**
 * What a backend compiles: a graph, run once or in a loop of `steps` turns.
 * - An input of `carried` takes the named output of the turn before.
 * - An input of `stacked` has a leading axis of `steps`; each turn uses its own slice.
 * - Carried outputs are those of the last turn; all others are stacked along a leading axis.
 */
export interface Executable {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly NamedOutput[];
  readonly loop?: Loop | undefined;
}

export interface Loop {
  readonly steps: number;
  readonly carried: ReadonlyMap<string, string>;
  readonly stacked: ReadonlySet<string>;
}

/** The inputs as a caller feeds them: those of `stacked` with their leading axis. */
export function fedInputs({ inputs, loop }: Executable): TensorSpec[] {
  return inputs.map((input) =>
    loop?.stacked.has(input.name) ? { ...input, shape: [loop.steps, ...input.shape] } : input,
  );
}

/** The outputs as a caller receives them: those that are not carried with their leading axis. */
export function givenOutputs({ outputs, loop }: Executable): TensorSpec[] {
  const carried = new Set(loop?.carried.values());
  return outputs.map(({ name, value: { shape, type } }) => ({
    name,
    type,
    shape: loop && !carried.has(name) ? [loop.steps, ...shape] : shape,
  }));
}
