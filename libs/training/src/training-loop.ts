import type { Optimizer } from "./optimizers/optimizer.ts";
import type { ParameterClient, Parameters } from "./parameter-client.ts";
import type { ParameterSpec } from "./training-program.ts";
import type { FragmentExchange } from "./weave/fragment-exchange.ts";

/** A worker's state beside the parameters, as an inner optimizer's moments. */
export type RankState = Readonly<Record<string, Float32Array>>;

/** An algorithm's plan for a job's config; the trainer runs it. */
export interface AlgorithmPlan {
  readonly parameters: readonly ParameterSpec[];
  /** How the servers apply pushes. */
  readonly servers: {
    readonly optimizer: Optimizer;
    /** Multiplies the `learningRate` of each push. */
    readonly learningRate: number;
    readonly maxGradientNorm?: number | undefined;
  };
  /** Reports of each worker until it is done, and the job's steps after that many of them. */
  readonly rounds: number;
  stepAfter(round: number): number;
  /** Pushes of one worker between two reports, for each fragment. */
  readonly pushesPerRound: number;
  /**
   * Parts of the model that are exchanged separately during computation, through `exchange`. Absent
   * where the loop pushes and pulls the whole model between two computations.
   */
  readonly fragments?: number | undefined;
  /**
   * This worker's loop of pull, compute and push. A plugin's loop that reports no round while some
   * are left has failed; after one report it may end early.
   */
  run(loop: TrainingLoop): Promise<void>;
}

/** The trainer's arguments to a plan's loop. */
export interface TrainingLoop {
  readonly client: ParameterClient;
  /** Absent where the plan has no fragments. */
  readonly exchange?: FragmentExchange | undefined;
  readonly parameters: Parameters;
  /** Rounds that the checkpoint contains. */
  readonly done: number;
  /** The state in the checkpoint; absent where there is none. */
  readonly state: RankState | undefined;
  readonly signal: AbortSignal;
  /** Between a pull and the next push. */
  report(round: RoundReport): Promise<"continue" | "stop">;
}

/** The report of one round. */
export interface RoundReport {
  /** The number of the round, from 1; earlier attempts are included. */
  readonly round: number;
  readonly step: number;
  readonly loss: number;
  readonly reward?: number | undefined;
  /** The tokens of all workers since the last report; absent where the data is not text. */
  readonly tokens?: number | undefined;
  /** The job has reached its goal before its steps have ended. */
  readonly reached?: boolean | undefined;
  /** Further metrics, as `entropy`. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly state: RankState;
}
