import type { Backend } from "../backend.ts";
import type { Optimizer } from "../optimizers/optimizer.ts";
import type { ParameterClient, Parameters } from "../parameter-client.ts";
import type { TrainingProgram } from "../training-program.ts";
import type { BatchSource } from "./batches.ts";
import { type FragmentExchange, wholeModelExchange } from "./fragment-exchange.ts";
import { ModelAverage } from "./model-average.ts";
import { WeaveReplica } from "./weave-replica.ts";
import { fragmentSchedule, type LocalSteps, weaveSchedule } from "./weave-schedule.ts";

/** How a weave job trains; the servers have the outer optimizer and the staleness bound. */
export interface WeaveConfig extends LocalSteps {
  readonly learning_rate: number;
  /** Steps over which the rate rises from zero; then it falls as a cosine to a tenth. */
  readonly warmup_steps: number;
  readonly max_grad_norm: number;
  /** As in `Overlap`; 1 where absent. */
  readonly fragments?: number | undefined;
  /** As in `Overlap`; 0 where absent. */
  readonly overlap_steps?: number | undefined;
  /**
   * alpha: the share of its own values that a worker keeps of a returned fragment. 0 where absent:
   * it takes the servers'.
   */
  readonly mixing_factor?: number | undefined;
  /**
   * Steps over which the final parameters are averaged (`ModelAverage`); where 0 or absent they are
   * the last ones.
   */
  readonly average_steps?: number | undefined;
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
  /** The worker's state after this round, from which it can resume. */
  readonly state: Readonly<Record<string, Float32Array>>;
}

export interface WeaveWorkerOptions {
  readonly config: WeaveConfig;
  readonly program: TrainingProgram;
  readonly optimizer: Optimizer;
  readonly backend: Backend;
  readonly client: ParameterClient;
  /** The exchange of a model's fragments; where absent the whole model goes through `client`. */
  readonly exchange?: FragmentExchange | undefined;
  readonly batches: BatchSource;
  /** Samples of one step: the weight of this worker's part. */
  readonly batch: number;
  /**
   * This worker's copy of the model; filled by the first pull, and at the end with the servers', or
   * their average.
   */
  readonly parameters: Parameters;
  /** From a checkpoint; the inner optimizer begins with zeros where absent. */
  readonly state?: Readonly<Record<string, Float32Array>> | undefined;
  /** Rounds that the checkpoint contains. */
  readonly done: number;
  readonly signal: AbortSignal;
  readonly report: (progress: WeaveProgress) => Promise<void>;
}

/**
 * One worker of a weave job: H local steps, then their displacement goes to the servers, fragment
 * by fragment. Rejects with an AppError `invalid_value` that names the step of the first loss that
 * is not finite.
 */
export async function runWeaveWorker(options: WeaveWorkerOptions): Promise<void> {
  const { config, client, parameters, signal, done } = options;
  const schedule = weaveSchedule(config);
  const { rounds, stepsOf, stepAfter } = schedule;
  const { fragments = 1, overlap_steps = 0, total_steps: total } = config;
  const { eventsOf } = fragmentSchedule(schedule, { fragments, overlap_steps });
  const exchange = options.exchange ?? wholeModelExchange(client, parameters);
  await exchange.pullAll();
  const replica = new WeaveReplica(options, exchange);
  replica.resume(done);
  const average = averageOf(options, replica);
  for (let round = done + 1; round <= rounds; round++) {
    for (const { step, begin, merge } of eventsOf(round)) {
      signal.throwIfAborted();
      await replica.trainTo(step);
      const terms = { weight: options.batch * stepsOf(round), learningRate: 1 };
      for (const fragment of begin) replica.begin(fragment, round, terms);
      for (const fragment of merge) {
        await exchange.finish(fragment);
        average?.add(fragment, exchange.shared, step);
        replica.merge(fragment, step === total ? 0 : replica.mixing);
      }
    }
    const progress = replica.report(round);
    const state = { ...progress.state, ...average?.state };
    await options.report({ round, rounds, step: stepAfter(round), ...progress, state });
  }
  average?.copyTo(parameters);
  await replica.close();
}

function averageOf(
  { config, parameters, state }: WeaveWorkerOptions,
  { ranges }: WeaveReplica,
): ModelAverage | undefined {
  const { average_steps: steps = 0 } = config;
  return steps > 0 ? new ModelAverage(parameters, ranges, steps, state) : undefined;
}
