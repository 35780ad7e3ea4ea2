import type { Optimizer } from "./optimizers/optimizer.ts";
import type { ParameterClient, Parameters } from "./parameter-client.ts";
import type { ParameterSpec } from "./training-program.ts";
import type { FragmentExchange } from "./weave/fragment-exchange.ts";

/** What a worker keeps beside the parameters, as an inner optimizer's moments. */
export type RankState = Readonly<Record<string, Float32Array>>;

/** What an algorithm makes of a job's config; the trainer does the rest. */
export interface AlgorithmPlan {
  readonly parameters: readonly ParameterSpec[];
  /** How the servers change them by what is pushed. */
  readonly servers: {
    readonly optimizer: Optimizer;
    /** Times the `learningRate` that comes with each push. */
    readonly learningRate: number;
    readonly maxGradientNorm?: number | undefined;
  };
  /** Reports of each worker until it is done, and the job's steps after so many of them. */
  readonly rounds: number;
  stepAfter(round: number): number;
  /** What one worker pushes between two reports, of each fragment. */
  readonly pushesPerRound: number;
  /**
   * Parts of the model that are exchanged one by one while the loop computes, through its `exchange`;
   * absent where it pushes and pulls the whole between two computations.
   */
  readonly fragments?: number | undefined;
  /**
   * This worker's loop of pull, compute and push, to its end. Of a plugin one that reports no round while
   * some are left has failed; it may end early once it has reported one.
   */
  run(loop: TrainingLoop): Promise<void>;
}

/** What the trainer gives to a plan's loop. */
export interface TrainingLoop {
  readonly client: ParameterClient;
  /** Where the plan has fragments. */
  readonly exchange?: FragmentExchange | undefined;
  readonly parameters: Parameters;
  /** Rounds that the checkpoint has behind it. */
  readonly done: number;
  /** From the checkpoint; absent where there is none. */
  readonly state: RankState | undefined;
  readonly signal: AbortSignal;
  /** Between a pull and the next push. */
  report(round: RoundReport): Promise<"go on" | "stop">;
}

/** What is told of one round. */
export interface RoundReport {
  /** From 1, former attempts included. */
  readonly round: number;
  readonly step: number;
  readonly loss: number;
  readonly reward?: number | undefined;
  /** Of all workers, since the report before; absent where the data is no text. */
  readonly tokens?: number | undefined;
  /** The job is done before its steps are over. */
  readonly reached?: boolean | undefined;
  /** What else is worth a line, as `entropy`. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly state: RankState;
}
