import { execFileSync, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type Random, seededRandom } from "@heddle/base/random";
import type { Tensors } from "@heddle/training/backend";
import { normal } from "@heddle/training/initialize";
import { elementCount } from "@heddle/training/ir/value";
import { languageModelProgram } from "@heddle/training/language-model/language-model";
import { ppoProgram } from "@heddle/training/ppo/ppo-program";
import { runReference } from "@heddle/training/reference/reference-backend";
import { supervisedProgram } from "@heddle/training/supervised/supervised-program";
import { gradientName, gradientsOf, type TrainingProgram } from "@heddle/training/training-program";
import { beforeAll, describe, expect, test } from "vitest";
import { onnxBackend } from "./onnx-backend.ts";

// The programs' gradients beside those of PyTorch, which knows nothing of our graphs: it has the
// programs from testing/torch-gradients.py, written from their descriptions.

const script = fileURLToPath(new URL("testing/torch-gradients.py", import.meta.url));
const python = process.env["HEDDLE_PYTHON"] ?? "python3";
const hasTorch = spawnSync(python, ["-c", "import torch"], { timeout: 120_000 }).status === 0;
if (!hasTorch) {
  process.stdout.write(
    `skipped: ${python} has no package torch. Set HEDDLE_PYTHON to a Python that has it to check gradients against PyTorch.\n`,
  );
}

/** By tensor, Euclidean; float64 gives 1e-15 here, and float32 up to 4e-6. */
const MAX_ERROR = 1e-5;

interface Case {
  readonly name: string;
  readonly kind: "supervised" | "ppo" | "language_model";
  readonly sizes: Readonly<Record<string, unknown>>;
  readonly program: TrainingProgram;
  readonly classes: number;
}

interface Answer {
  readonly loss: number;
  readonly gradients: Readonly<Record<string, readonly number[]>>;
}

const CASES: readonly Case[] = [
  supervised("regression", [16, 16]),
  supervised("classification", [16]),
  ppo({ continuous: false, norm_adv: true, clip_vloss: true }),
  ppo({ continuous: true, norm_adv: false, clip_vloss: false }),
  languageModel(),
];

function supervised(task: "regression" | "classification", hidden: readonly number[]): Case {
  const sizes = { features: 6, outputs: 3, task, hidden };
  const program = supervisedProgram(sizes, 32);
  return { name: `a dense network, ${task}`, kind: "supervised", sizes, program, classes: 3 };
}

function ppo(options: {
  readonly continuous: boolean;
  readonly norm_adv: boolean;
  readonly clip_vloss: boolean;
}): Case {
  const policy = { observations: 4, actions: 3, hidden: 16, continuous: options.continuous };
  const sizes = { ...options, clip_coef: 0.2, ent_coef: 0.01, vf_coef: 0.5 };
  const name = `PPO's loss, ${options.continuous ? "numbers" : "choices"}`;
  return { name, kind: "ppo", sizes, program: ppoProgram(policy, 64, sizes), classes: 3 };
}

function languageModel(): Case {
  const sizes = {
    ...{ vocab_size: 37, context_length: 12, hidden_size: 32, layers: 2, heads: 4, kv_heads: 2 },
    ...{ intermediate_size: 48, rope_theta: 10_000, norm_epsilon: 1e-5 },
  };
  const program = languageModelProgram(sizes, 3);
  const name = "a language model: RMSNorm, RoPE, SwiGLU, grouped heads";
  return { name, kind: "language_model", sizes, program, classes: 37 };
}

/** No parameter is at zero or one, where a wrong gradient might not show. */
function drawFeeds({ program, classes }: Case, random: Random): Tensors {
  const parameters = program.parameters.map(({ name, shape, init }) => {
    const middle = init.kind === "ones" ? 1 : 0;
    const draw = () => middle + 0.3 * normal(random);
    return [name, Float32Array.from({ length: elementCount(shape) }, draw)] as const;
  });
  const data = program.data.map(({ name, shape, type }) => {
    const length = elementCount(shape);
    if (type === "f32") return [name, Float32Array.from({ length }, () => normal(random))] as const;
    return [name, Int32Array.from({ length }, () => Math.floor(random() * classes))] as const;
  });
  return Object.fromEntries([...parameters, ...data]);
}

function described({ kind, sizes, program }: Case, feeds: Tensors): unknown {
  const all = (specs: readonly { name: string; shape: readonly number[]; type?: string }[]) =>
    Object.fromEntries(
      specs.map(({ name, shape, type = "f32" }) => [
        name,
        { shape, type, values: [...(feeds[name] ?? [])] },
      ]),
    );
  return { kind, sizes, parameters: all(program.parameters), data: all(program.data) };
}

function worst(
  { program }: Case,
  answer: Answer | undefined,
  found: Readonly<Record<string, ArrayLike<number>>>,
): number {
  const errors = program.parameters.map(({ name }) => {
    const [exact, given] = [answer?.gradients[name] ?? [], found[gradientName(name)] ?? []];
    if (exact.length === 0 || exact.length !== given.length) return Number.POSITIVE_INFINITY;
    const difference = Math.hypot(...exact.map((value, i) => value - (given[i] ?? Number.NaN)));
    return difference / Math.hypot(...exact);
  });
  return Math.max(...errors);
}

describe.runIf(hasTorch)("gradients against PyTorch in float64", () => {
  const seed = 20_261_121;
  const random = seededRandom(seed);
  const feeds = CASES.map((each) => drawFeeds(each, random));
  let answers: readonly Answer[] = [];

  beforeAll(() => {
    console.log(`weights and data are drawn by the seed ${seed}`);
    const input = JSON.stringify(CASES.map((each, i) => described(each, feeds[i] ?? {})));
    const output = execFileSync(python, [script], { input, maxBuffer: 2 ** 28, timeout: 120_000 });
    answers = JSON.parse(output.toString()) as Answer[];
  }, 240_000);

  test.each(CASES.map((each, i) => [each.name, i] as const))("%s", async (name, i) => {
    const each = CASES[i] as Case;
    const executable = gradientsOf(each.program);
    const exact = runReference(executable, feeds[i] ?? {});
    expect(exact["loss"]?.[0]).toBeCloseTo(answers[i]?.loss ?? Number.NaN, 9);
    const reference = worst(each, answers[i], exact);
    const compiled = await onnxBackend({ device: "cpu", threads: 1 }).compile(executable);
    const float32 = worst(each, answers[i], await compiled.run(feeds[i] ?? {}));
    await compiled.close();
    console.log(
      `${name}: float64 ${reference.toExponential(1)}, float32 ${float32.toExponential(1)}`,
    );
    expect(reference).toBeLessThan(MAX_ERROR);
    expect(float32).toBeLessThan(MAX_ERROR);
  });
});
