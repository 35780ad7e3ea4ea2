import type { Backend, CompiledProgram, Tensors } from "../backend.ts";
import { type Executable, fedInputs, type Loop } from "../executable.ts";
import { elementCount } from "../ir/value.ts";
import { type Feeds, interpret } from "./interpreter.ts";

/** The oracle: every operation by a plain loop in float64. Slow. */
export const referenceBackend: Backend = {
  name: "reference",
  device: "cpu (float64 interpreter)",
  compile: (executable: Executable): Promise<CompiledProgram> =>
    Promise.resolve({
      run: (feeds: Tensors) => Promise.resolve(narrow(runReference(executable, feeds))),
      close: () => Promise.resolve(),
    }),
};

/** One run in float64; throws an AppError `invalid_value` for a missing or misshapen feed. */
export function runReference(executable: Executable, feeds: Feeds): Record<string, Float64Array> {
  const { loop, outputs } = executable;
  const values = outputs.map(({ value }) => value);
  const named = (results: readonly Float64Array[]) =>
    Object.fromEntries(outputs.map(({ name }, i) => [name, results[i] as Float64Array]));
  if (!loop) return named(interpret(values, feeds));
  const turns: Record<string, Float64Array>[] = [];
  const current: Record<string, ArrayLike<number>> = { ...feeds };
  for (let turn = 0; turn < loop.steps; turn++) {
    for (const { name, shape } of fedInputs(executable)) {
      if (loop.stacked.has(name)) current[name] = sliceOf(feeds[name], turn, shape);
    }
    const results = named(interpret(values, current));
    for (const [input, output] of loop.carried) current[input] = results[output] ?? [];
    turns.push(results);
  }
  return Object.fromEntries(outputs.map(({ name }) => [name, gathered(loop, name, turns)]));
}

function sliceOf(stack: ArrayLike<number> | undefined, turn: number, shape: readonly number[]) {
  const size = elementCount(shape.slice(1));
  return Array.from({ length: size }, (_, i) => stack?.[turn * size + i] ?? Number.NaN);
}

function gathered(
  loop: Loop,
  name: string,
  turns: readonly Record<string, Float64Array>[],
): Float64Array {
  const parts = turns.map((turn) => turn[name] ?? new Float64Array());
  if ([...loop.carried.values()].includes(name)) return parts.at(-1) ?? new Float64Array();
  return Float64Array.from(parts.flatMap((part) => [...part]));
}

function narrow(results: Record<string, Float64Array>): Record<string, Float32Array> {
  return Object.fromEntries(
    Object.entries(results).map(([name, data]) => [name, Float32Array.from(data)]),
  );
}
