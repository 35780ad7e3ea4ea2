import { AppError } from "@heddle/base/errors";
import type { Backend, CompiledProgram, Tensors } from "../backend.ts";
import type { Optimizer } from "../optimizers/optimizer.ts";
import type { ParameterClient, Parameters } from "../parameter-client.ts";
import { localStepsOf, nextName, type TrainingProgram, zeroState } from "../training-program.ts";
import type { BatchSource } from "./batches.ts";
import { type LocalSteps, weaveSchedule } from "./weave-schedule.ts";

/** How a weave job trains; the outer optimizer and the staleness bound are the servers'. */
export interface WeaveConfig extends LocalSteps {
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
  /** Of the round's last step. */
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
  const { rounds, stepsOf, stepAfter } = weaveSchedule(config);
  const programs = new LocalPrograms(options);
  const state = options.state ?? zeroState(program, optimizer);
  await client.pull(parameters);
  for (let round = options.done + 1; round <= rounds; round++) {
    signal.throwIfAborted();
    const [before, steps] = [stepAfter(round - 1), stepsOf(round)];
    const rates = Float32Array.from({ length: steps }, (_, i) => rateAt(config, before + i));
    const compiled = await programs.of(steps);
    const feeds = { ...parameters, ...state, ...options.batches(steps) };
    const results = await compiled.run({ ...feeds, learning_rate: rates });
    const loss = checkedMean(results, before);
    for (const [name, data] of Object.entries(state)) data.set(results[nextName(name)] ?? []);
    await client.push(displacement(parameters, results), {
      weight: options.batch * steps,
      learningRate: 1,
    });
    await client.pull(parameters);
    const gradientNorm = mean(results["gradient_norm"] ?? new Float32Array());
    const learningRate = rates.at(-1) ?? 0;
    const step = before + steps;
    await options.report({ round, rounds, step, loss, gradientNorm, learningRate, state });
  }
  await programs.close();
}

/** Programs of so many local steps in one run; a warm start has its own. */
class LocalPrograms {
  readonly #options: WeaveWorkerOptions;
  readonly #compiled = new Map<number, CompiledProgram>();

  constructor(options: WeaveWorkerOptions) {
    this.#options = options;
  }

  async of(steps: number): Promise<CompiledProgram> {
    const known = this.#compiled.get(steps);
    if (known) return known;
    // The one before is not needed any more.
    await this.close();
    const { backend, program, optimizer, config } = this.#options;
    const rules = { optimizer, maxGradientNorm: config.max_grad_norm };
    const compiled = await backend.compile(localStepsOf(program, rules, steps));
    this.#compiled.set(steps, compiled);
    return compiled;
  }

  async close(): Promise<void> {
    for (const compiled of this.#compiled.values()) await compiled.close();
    this.#compiled.clear();
  }
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
