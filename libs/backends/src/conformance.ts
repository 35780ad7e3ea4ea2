import { seededRandom } from "@heddle/base/random";
import type { Backend, Tensors } from "@heddle/training/backend";
import { type Executable, fedInputs } from "@heddle/training/executable";
import { elementCount } from "@heddle/training/ir/value";
import {
  type LanguageModelShape,
  languageModelProgram,
} from "@heddle/training/language-model/language-model";
import { ADAM, type Optimizer } from "@heddle/training/optimizers/optimizer";
import { policyForward, ppoProgram } from "@heddle/training/ppo/ppo-program";
import { runReference } from "@heddle/training/reference/reference-backend";
import { supervisedProgram } from "@heddle/training/supervised/supervised-program";
import {
  gradientsOf,
  localStepsOf,
  stepOf,
  type TrainingProgram,
} from "@heddle/training/training-program";

/** One program that every backend must run as the float64 oracle does. */
export interface ConformanceCase {
  readonly name: string;
  readonly executable: Executable;
  /** The bound of random indices. */
  readonly classes: number;
}

const POLICY = { observations: 4, actions: 3, hidden: 16 };
const LOSS = { clip_coef: 0.2, clip_vloss: true, norm_adv: true, ent_coef: 0.01, vf_coef: 0.5 };
const NESTEROV: Optimizer = { kind: "sgd", momentum: 0.9, nesterov: true };
const LANGUAGE_MODEL: LanguageModelShape = {
  vocab_size: 11,
  context_length: 6,
  hidden_size: 16,
  layers: 2,
  heads: 4,
  kv_heads: 2,
  intermediate_size: 24,
  rope_theta: 10_000,
  norm_epsilon: 1e-5,
};

/** The kit: each operation, each program, each optimizer and the loop at least once. */
export function conformanceCases(): ConformanceCase[] {
  const discrete = ppoProgram({ ...POLICY, continuous: false }, 8, LOSS);
  const continuous = ppoProgram({ ...POLICY, continuous: true }, 8, LOSS);
  const regression = supervised("regression");
  const classification = supervised("classification");
  const step = { optimizer: ADAM, maxGradientNorm: 0.5 };
  const adamw: Optimizer = { ...ADAM, kind: "adamw", weightDecay: 0.01 };
  const make = (name: string, executable: Executable, classes = 3): ConformanceCase => ({
    name,
    executable,
    classes,
  });
  return [
    make("gradients of PPO, choices", gradientsOf(discrete)),
    make("gradients of PPO, numbers", gradientsOf(continuous)),
    make("a policy's forward pass", policyForward({ ...POLICY, continuous: false }, 5)),
    make("gradients of a language model", gradientsOf(languageModelProgram(LANGUAGE_MODEL, 2)), 11),
    make("a step of Adam, clipped", stepOf(discrete, step)),
    make("a step of AdamW", stepOf(regression, { optimizer: adamw })),
    make("a step of Nesterov momentum", stepOf(classification, { optimizer: NESTEROV })),
    make("five local steps of plain SGD", localStepsOf(regression, { optimizer: plainSgd }, 5)),
    make("three local steps of Adam", localStepsOf(classification, step, 3)),
  ];
}

const plainSgd: Optimizer = { kind: "sgd", momentum: 0, nesterov: false };

function supervised(task: "regression" | "classification"): TrainingProgram {
  return supervisedProgram({ features: 5, outputs: 3, task, hidden: [8] }, 7);
}

/** The greatest relative error (Euclidean, by tensor) of a backend against the oracle. */
export async function conformanceError(
  backend: Backend,
  { executable, classes }: ConformanceCase,
  seed: number,
): Promise<number> {
  const feeds = drawFeeds(executable, classes, seed);
  const expected = runReference(executable, feeds);
  const program = await backend.compile(executable);
  const results = await program.run(feeds);
  await program.close();
  const errors = Object.entries(expected).map(([name, exact]) => {
    const given = results[name];
    if (given?.length !== exact.length) return Number.POSITIVE_INFINITY;
    const difference = Math.hypot(...exact.map((value, i) => value - (given[i] ?? Number.NaN)));
    return difference / Math.max(Math.hypot(...exact), 1e-3);
  });
  return Math.max(...errors);
}

function drawFeeds(executable: Executable, classes: number, seed: number): Tensors {
  const random = seededRandom(seed);
  const draw = (name: string): number => {
    if (name === "step") return 0;
    if (name === "learning_rate") return 0.01;
    // At the first step moments are zero; a random one would make the quotient ill-conditioned.
    if (name.includes("_moment.") || name.startsWith("velocity.")) return 0;
    return random() - 0.5;
  };
  return Object.fromEntries(
    fedInputs(executable).map(({ name, shape, type }) => {
      const length = elementCount(shape);
      if (type === "f32") return [name, Float32Array.from({ length }, () => draw(name))];
      return [name, Int32Array.from({ length }, () => Math.floor(random() * classes))];
    }),
  );
}
