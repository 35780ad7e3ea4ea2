import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import type { Tensors } from "@heddle/training/backend";
import { initialParameters } from "@heddle/training/initialize";
import { elementCount, type Value } from "@heddle/training/ir/value";
import { languageModelProgram } from "@heddle/training/language-model/language-model";
import { gradientsOf, type TrainingProgram } from "@heddle/training/training-program";
import { median } from "../support/statistics.ts";

/** Forward and backward of one batch, in ms of processor time: other programs do not count. */
export interface StepFigure {
  readonly name: string;
  readonly parameters: number;
  readonly medianMs: number;
  readonly bestMs: number;
}

const LANGUAGE_MODEL = {
  vocab_size: 512,
  context_length: 128,
  hidden_size: 256,
  layers: 4,
  heads: 4,
  kv_heads: 4,
  intermediate_size: 688,
  rope_theta: 10_000,
  norm_epsilon: 1e-5,
};

/**
 * Turns by batch: those that are not timed, the same on both sides, and those that are. Training
 * takes thousands of steps, and the first of a process pay for compiling the code around them.
 */
const MLP_TURNS: ReadonlyMap<number, { readonly warm: number; readonly turns: number }> = new Map([
  [64, { warm: 1_000, turns: 200 }],
  [1024, { warm: 100, turns: 40 }],
]);
const LANGUAGE_MODEL_TURNS = { warm: 3, turns: 10 };

/** The steps of the specification on ONNX Runtime, one thread. */
export async function measureSteps(): Promise<StepFigure[]> {
  const random = seededRandom(1);
  const figures: StepFigure[] = [];
  for (const [batch, turns] of MLP_TURNS) {
    const name = `MLP 8-256-256-(4,1), B=${batch}`;
    figures.push(await measure(name, mlp(batch), turns, random));
  }
  const name = "language model, 4 x 128 tokens";
  const program = languageModelProgram(LANGUAGE_MODEL, 4);
  figures.push(await measure(name, program, LANGUAGE_MODEL_TURNS, random));
  return figures;
}

async function measure(
  name: string,
  program: TrainingProgram,
  { turns, warm }: { readonly turns: number; readonly warm: number },
  random: () => number,
): Promise<StepFigure> {
  const backend = onnxBackend({ device: "cpu", threads: 1 });
  const compiled = await backend.compile(gradientsOf(program));
  const parameters = initialParameters(program.parameters, random);
  const data: Tensors = Object.fromEntries(
    program.data.map(({ name: input, shape, type }) => {
      const length = elementCount(shape);
      if (type === "i32")
        return [input, Int32Array.from({ length }, () => Math.floor(random() * 4))];
      return [input, Float32Array.from({ length }, () => random() * 2 - 1)];
    }),
  );
  const times: number[] = [];
  for (let turn = 0; turn < turns + warm; turn++) {
    const begin = process.cpuUsage();
    await compiled.run({ ...parameters, ...data });
    const { user, system } = process.cpuUsage(begin);
    if (turn >= warm) times.push((user + system) / 1e3);
  }
  await compiled.close();
  const count = program.parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  return { name, parameters: count, medianMs: median(times), bestMs: Math.min(...times) };
}

/** A policy and a value on one trunk, with the policy's cross-entropy and the value's error. */
function mlp(batch: number): TrainingProgram {
  const dense = (name: string, rows: number, columns: number) => [
    { name: `${name}.w`, shape: [rows, columns], init: { kind: "orthogonal", gain: 1 } as const },
    { name: `${name}.b`, shape: [columns], init: { kind: "zeros" } as const },
  ];
  return {
    parameters: [
      ...dense("one", 8, 256),
      ...dense("two", 256, 256),
      ...dense("policy", 256, 4),
      ...dense("value", 256, 1),
    ],
    data: [
      { name: "observation", shape: [batch, 8], type: "f32" },
      { name: "action", shape: [batch], type: "i32" },
      { name: "return", shape: [batch, 1], type: "f32" },
    ],
    build: (graph, inputs) => {
      const layer = (name: string, rows: Value) =>
        graph.add(graph.matmul(rows, inputs[`${name}.w`] as Value), inputs[`${name}.b`] as Value);
      const one = graph.tanh(layer("one", inputs["observation"] as Value));
      const trunk = graph.tanh(layer("two", one));
      const logs = graph.logSoftmax(layer("policy", trunk));
      const chosen = graph.mul(logs, graph.oneHot(inputs["action"] as Value, 4));
      const policy = graph.neg(graph.mean(graph.sum(chosen, [-1])));
      const error = graph.sub(layer("value", trunk), inputs["return"] as Value);
      return { loss: graph.add(policy, graph.mean(graph.square(error))), metrics: {} };
    },
  };
}
