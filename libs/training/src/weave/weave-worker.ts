import { AppError } from "@heddle/base/errors";
import type { Backend, Tensors } from "../backend.ts";
import type { Optimizer } from "../optimizers/optimizer.ts";
import type { ParameterClient, Parameters } from "../parameter-client.ts";
import { localStepsOf, nextName, type TrainingProgram, zeroState } from "../training-program.ts";
import type { BatchSource } from "./batches.ts";

/** How a weave job trains; the outer optimizer and the staleness bound are the servers'. */
export interface WeaveConfig {
  /** Inner steps of each worker in all. */
  readonly total_steps: number;
  /** H: steps between two exchanges. 1 with plain SGD is synchronous SGD. */
  readonly local_steps: number;
  readonly learning_rate: number;
  /** Steps over which the rate rises from zero; then it falls as a cosine to a tenth. */
  readonly warmup_steps: number;
  readonly max_grad_norm: number;
}

export interface WeaveProgress {
  /** Exchanges so far, from 1. */
  readonly round: number;
  readonly rounds: number;
  /** Inner steps of this worker so far. */
  readonly step: number;
  /** The mean loss of the round's steps, in the program's unit. */
  readonly loss: number;
  readonly gradientNorm: number;
  readonly learningRate: number;
  /** What the inner optimizer keeps after this round, by which the worker can go on. */
  readonly state: Readonly<Record<string, Float32Array>>;
}

export interface WeaveWorkerOptions {
  readonly config: WeaveConfig;
  readonly program: TrainingProgram;
  readonly optimizer: Optimizer;
  readonly backend: Backend;
  readonly client: ParameterClient;
  readonly batches: BatchSource;
  /** Samples of one step: the weight of this worker's part. */
  readonly batch: number;
  /** This worker's copy of the model; filled by the first pull. */
  readonly parameters: Parameters;
  /** What the inner optimizer keeps, from a checkpoint; filled with zeros where absent. */
  readonly state?: Readonly<Record<string, Float32Array>> | undefined;
  /** Rounds that a checkpoint has behind it. */
  readonly done: number;
  readonly signal: AbortSignal;
  readonly report: (progress: WeaveProgress) => Promise<void>;
}

/**
 * One worker of a weave job: pull, H local steps in one run, push how far they went. Rejects with an
 * AppError `invalid_value` at the first loss that is no number, and says at which step.
 */
export async function runWeaveWorker(options: WeaveWorkerOptions): Promise<void> {
  const { config, program, optimizer, client, parameters, signal } = options;
  const stepOptions = { optimizer, maxGradientNorm: config.max_grad_norm };
  const compiled = await options.backend.compile(
    localStepsOf(program, stepOptions, config.local_steps),
  );
  const state = options.state ?? zeroState(program, optimizer);
  const rounds = Math.ceil(config.total_steps / config.local_steps);
  await client.pull(parameters);
  for (let round = options.done + 1; round <= rounds; round++) {
    signal.throwIfAborted();
    const learningRate = rateAt(config, (round - 1) * config.local_steps);
    const data = options.batches(config.local_steps);
    const feeds = { ...parameters, ...state, ...data };
    const results = await compiled.run({ ...feeds, learning_rate: Float32Array.of(learningRate) });
    const step = round * config.local_steps;
    const loss = checkedMean(results, step - config.local_steps);
    for (const [name, data] of Object.entries(state)) data.set(results[nextName(name)] ?? []);
    await client.push(displacement(parameters, results), {
      weight: options.batch * config.local_steps,
      learningRate: 1,
    });
    await client.pull(parameters);
    const gradientNorm = mean(results["gradient_norm"] ?? new Float32Array());
    await options.report({ round, rounds, step, loss, gradientNorm, learningRate, state });
  }
  await compiled.close();
}

/** How far each tensor went, as a gradient points: before less after. */
function displacement(before: Parameters, results: Tensors): Parameters {
  return Object.fromEntries(
    Object.entries(before).map(([name, data]) => {
      const after = results[nextName(name)];
      return [name, data.map((value, i) => value - (after?.[i] ?? 0))];
    }),
  );
}

function rateAt({ learning_rate, warmup_steps, total_steps }: WeaveConfig, step: number): number {
  if (step < warmup_steps) return (learning_rate * (step + 1)) / warmup_steps;
  const part = (step - warmup_steps) / Math.max(1, total_steps - warmup_steps);
  return learning_rate * (0.1 + 0.45 * (1 + Math.cos(Math.PI * Math.min(1, part))));
}

function checkedMean(results: Tensors, before: number): number {
  const losses = results["loss"] as Float32Array;
  const bad = losses.findIndex((loss) => !Number.isFinite(loss));
  if (bad === -1) return mean(losses);
  throw new AppError(
    "invalid_value",
    `the loss is ${losses[bad]} at step ${before + bad + 1}: training has diverged. ` +
      "Lower learning_rate, lengthen warmup_steps, or look for bad numbers in the data",
  );
}

function mean(numbers: Float32Array): number {
  return numbers.reduce((sum, number) => sum + number, 0) / Math.max(1, numbers.length);
}
