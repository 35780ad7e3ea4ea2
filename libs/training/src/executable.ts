import type { ElementType, Shape, Value } from "./ir/value.ts";

/** A tensor by name, as a backend is fed it or gives it back. */
export interface TensorSpec {
  readonly name: string;
  readonly shape: Shape;
  readonly type: ElementType;
}

/** A graph's outputs under the names that they are handed out by; no input has such a name. */
export interface NamedOutput {
  readonly name: string;
  readonly value: Value;
}

/**
 * What a backend compiles: a graph, run once or in a loop. In a loop of `steps` turns an input of
 * `carried` takes the named output of the turn before; an input of `stacked` is fed with a leading
 * axis of `steps` and each turn sees its own slice; all others stay. Outputs that are carried come
 * back as the last turn left them, all others stacked along a leading axis.
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

/** The inputs as they are fed: those of `stacked` with their leading axis. */
export function fedInputs({ inputs, loop }: Executable): TensorSpec[] {
  return inputs.map((input) =>
    loop?.stacked.has(input.name) ? { ...input, shape: [loop.steps, ...input.shape] } : input,
  );
}

/** The outputs as they come back: those that are not carried with their leading axis. */
export function givenOutputs({ outputs, loop }: Executable): TensorSpec[] {
  const carried = new Set(loop?.carried.values());
  return outputs.map(({ name, value: { shape, type } }) => ({
    name,
    type,
    shape: loop && !carried.has(name) ? [loop.steps, ...shape] : shape,
  }));
}
