import type { Backend } from "../backend.ts";
import type { Optimizer } from "../optimizers/optimizer.ts";
import type { ParameterClient, Parameters } from "../parameter-client.ts";
import type { TrainingProgram } from "../training-program.ts";
import type { BatchSource } from "./batches.ts";
import type { FragmentExchange } from "./fragment-exchange.ts";
import type { LocalSteps } from "./weave-schedule.ts";

/** How a weave job trains; the servers have the outer optimizer and the staleness bound. */
export interface WeaveConfig extends LocalSteps {
  readonly learning_rate: number;
  /** Steps over which the rate rises from zero; then it falls as a cosine to a tenth. */
  readonly warmup_steps: number;
  readonly max_grad_norm: number;
  /** See `Overlap`; 1 where absent. */
  readonly fragments?: number | undefined;
  /** See `Overlap`; 0 where absent. */
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
  /** The learning rate of the round's last step. */
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
