import type { Random } from "@heddle/base/random";
import type { Backend, Tensors } from "../backend.ts";
import type { Executable } from "../executable.ts";
import { bad } from "../ir/shapes.ts";
import { ADAM } from "../optimizers/optimizer.ts";
import type { ParameterClient, Parameters } from "../parameter-client.ts";
import {
  gradientName,
  gradientsOf,
  localStepsOf,
  nextName,
  type TrainingProgram,
  zeroState,
} from "../training-program.ts";
import { gatherExperience, shuffle } from "./minibatches.ts";
import type { PpoConfig } from "./ppo-config.ts";
import type { Experience } from "./rollout-collector.ts";

/** Adam with CleanRL's epsilon. */
export const PPO_ADAM = { ...ADAM, epsilon: 1e-5 };

/** Means over the minibatches of an update, by name; `loss` among them. */
export type UpdateMetrics = Readonly<Record<string, number>>;

/** Changes the parameters by an experience. */
export interface PpoUpdater {
  /** State between updates; empty where the servers keep it. */
  readonly state: Readonly<Record<string, Float32Array>>;
  /** Rejects with an AppError `invalid_value` at the first loss that is not finite. */
  update(experience: Experience, learningRate: number): Promise<UpdateMetrics>;
  close(): Promise<void>;
}

export interface UpdaterParts {
  readonly backend: Backend;
  readonly program: TrainingProgram;
  readonly config: PpoConfig;
  readonly client: ParameterClient;
  /** This worker's copy, as it was pulled; changed in place. */
  readonly parameters: Parameters;
  readonly random: Random;
  /** From a checkpoint; zeros where absent. */
  readonly state?: Readonly<Record<string, Float32Array>> | undefined;
}

/**
 * For a job of one worker: the steps of an update run in one call, or in one for each epoch where
 * `target_kl` is set. Adam's state is kept here and the servers receive displacements, by plain SGD
 * and without compression. Only this worker changes the parameters, so nothing is pulled.
 */
export async function localUpdater(parts: UpdaterParts): Promise<PpoUpdater> {
  const { backend, program, config, client, parameters, random } = parts;
  const options = { optimizer: PPO_ADAM, maxGradientNorm: config.max_grad_norm };
  const epochs = config.target_kl === undefined ? config.update_epochs : 1;
  const executable = localStepsOf(program, options, config.num_minibatches * epochs);
  const compiled = await backend.compile(executable);
  const state = parts.state ?? zeroState(program, PPO_ADAM);
  const served = copyOf(parameters);
  return {
    state,
    close: () => compiled.close(),
    update: async (experience, learningRate) => {
      const order = Int32Array.from(experience.value.keys());
      const metrics = new MetricMeans(executable);
      for (let epoch = 0; epoch < config.update_epochs; epoch += epochs) {
        const rows = gatherExperience(experience, shuffledEpochs(order, epochs, random));
        const rate = new Float32Array(config.num_minibatches * epochs).fill(learningRate);
        const results = await compiled.run({
          ...parameters,
          ...state,
          ...rows,
          learning_rate: rate,
        });
        for (const name of Object.keys(state)) state[name]?.set(results[nextName(name)] ?? []);
        for (const [name, data] of Object.entries(parameters)) {
          data.set(results[nextName(name)] ?? []);
        }
        metrics.add(results);
        // As in CleanRL: of the epoch's last minibatch, not of their mean.
        if (metrics.latest("approximate_kl") > (config.target_kl ?? Number.POSITIVE_INFINITY))
          break;
      }
      await client.push(movedTo(parameters, served), { weight: 1, learningRate: 1 });
      // The servers' values, bit by bit: a worker that resumes begins with them.
      for (const [name, data] of Object.entries(served)) parameters[name]?.set(data);
      return metrics.means();
    },
  };
}

/** Several shuffles of the same rows, one after the other; `order` ends as the last. */
function shuffledEpochs(order: Int32Array, epochs: number, random: Random): Int32Array {
  const rows = new Int32Array(order.length * epochs);
  for (let epoch = 0; epoch < epochs; epoch++) {
    shuffle(order, random);
    rows.set(order, epoch * order.length);
  }
  return rows;
}

/**
 * For several workers: the gradients of each minibatch go to the servers, which clip, average and
 * apply Adam. The parameters are pulled before the next minibatch.
 */
export async function sharedUpdater(parts: UpdaterParts): Promise<PpoUpdater> {
  const { backend, program, config, client, parameters, random } = parts;
  const executable = gradientsOf(program);
  const compiled = await backend.compile(executable);
  return {
    state: {},
    close: () => compiled.close(),
    update: async (experience, learningRate) => {
      const order = Int32Array.from(experience.value.keys());
      const size = order.length / config.num_minibatches;
      const metrics = new MetricMeans(executable);
      for (let epoch = 0; epoch < config.update_epochs; epoch++) {
        shuffle(order, random);
        for (let begin = 0; begin < order.length; begin += size) {
          const rows = gatherExperience(experience, order.subarray(begin, begin + size));
          const results = await compiled.run({ ...parameters, ...rows });
          metrics.add(results);
          const part = gradientsFrom(results, parameters);
          await client.push(part, { weight: size, learningRate });
          await client.pull(parameters);
        }
      }
      return metrics.means();
    },
  };
}

function gradientsFrom(results: Tensors, parameters: Parameters): Parameters {
  return Object.fromEntries(
    Object.keys(parameters).map((name) => [name, results[gradientName(name)] as Float32Array]),
  );
}

function copyOf(parameters: Parameters): Parameters {
  return Object.fromEntries(Object.entries(parameters).map(([name, data]) => [name, data.slice()]));
}

/**
 * The displacement between the servers' parameters and these; `served` becomes the servers' next
 * value by the same float32 arithmetic.
 */
function movedTo(parameters: Parameters, served: Parameters): Parameters {
  return Object.fromEntries(
    Object.entries(served).map(([name, before]) => {
      const now = parameters[name] ?? before;
      const part = before.map((value, i) => value - (now[i] ?? 0));
      for (let i = 0; i < before.length; i++) before[i] = (before[i] ?? 0) - (part[i] ?? 0);
      return [name, part];
    }),
  );
}

/** An AppError `invalid_value` with advice. */
export function diverged(why: string): Error {
  return bad(
    `${why}: training has diverged. Lower learning_rate or max_grad_norm, or look ` +
      "for rewards and observations that are not finite numbers",
  );
}

/** Averages a program's metrics. */
class MetricMeans {
  readonly #names: readonly string[];
  readonly #sums = new Map<string, number>();
  #latest: Record<string, number> = {};
  #count = 0;

  constructor({ outputs }: Executable) {
    this.#names = outputs
      .filter(({ name, value }) => value.shape.length === 0 && !name.includes("."))
      .map(({ name }) => name);
  }

  add(results: Tensors): void {
    this.#count++;
    for (const name of this.#names) {
      const data = results[name] ?? [];
      let sum = 0;
      for (const value of data) sum += value;
      const mean = sum / data.length;
      if (name === "loss" && !Number.isFinite(mean)) throw diverged(`the loss is ${mean}`);
      this.#latest[name] = data.at(-1) ?? 0;
      this.#sums.set(name, (this.#sums.get(name) ?? 0) + mean);
    }
  }

  /** The last minibatch's value. */
  latest(name: string): number {
    return this.#latest[name] ?? 0;
  }

  means(): UpdateMetrics {
    return Object.fromEntries([...this.#sums].map(([name, sum]) => [name, sum / this.#count]));
  }
}
