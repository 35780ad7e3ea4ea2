import type { Duplex } from "node:stream";
import type { AppError } from "@heddle/base/errors";
import type {
  DeploymentSpec,
  Engine,
  EngineEventSink,
  EngineOptions,
  WeightsSpec,
} from "@heddle/contracts/engine";
import type { ModelStage } from "@heddle/contracts/models/model-division";
import type { EngineLauncher } from "@heddle/engines/llama/parent/engine-link";
import type { ModelPlan } from "@heddle/engines/shards/plan-model";
import type { ShardWorker } from "@heddle/engines/shards/plan-stages";
import type { IndexedModel, WeightsPeer } from "@heddle/engines/shards/weights/stage-weights";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";
import type { JoinedStage, KnownPeers } from "./stages/join-peers.ts";

/** The provider's token of the ports. */
export const ENGINES = Symbol("EnginePorts");

/** The worker's port to libs/engines; tests supply a scripted engine through it. */
export interface EnginePorts {
  readonly startEngine: EngineFactory;
  readonly pullWeights: WeightsPuller;
  /** Absent where models are not divided. */
  readonly stages?: StagePorts | undefined;
}

/**
 * Starts an engine and resolves when it accepts requests; rejects with an AppError. `onExit` is
 * called at most once, when the engine ends without a call of `close`. `signal` aborts the loading;
 * the promise then rejects.
 */
export type EngineFactory = (start: {
  readonly spec: DeploymentSpec;
  /** Absent where the deployment has no weights. */
  readonly modelPath: string | undefined;
  readonly sink: EngineEventSink;
  readonly onExit: (error: AppError) => void;
  /** Called when it takes no requests for now: it restarts, or its server does not answer. */
  readonly onDown: (error: AppError) => void;
  /**
   * Called while it waits for other stages, with the reason and, by node, since when those are not reached
   * that are not.
   */
  readonly onWaiting?: (reason: string, unreachable: KnownPeers["unreachable"]) => void;
  /** Called when it takes requests again after that. */
  readonly onRecovered: () => void;
  readonly signal: AbortSignal;
  /**
   * Begins the engine's process elsewhere, where these folders with weights can be read; absent: as a
   * child of the worker.
   */
  readonly launchWith?: (weights: readonly string[]) => EngineLauncher;
  /** Opens the streams to the other stages of a model; absent outside a cluster. */
  readonly joinPeers?: PeerStages | undefined;
  /** The stage as it is now: other workers may have got the others. */
  readonly stage?: () => ModelStage | undefined;
}) => Promise<WorkerEngine>;

/** An engine, or the part of one that another worker drives. */
export interface WorkerEngine extends Engine {
  readonly stage?: StageHost | undefined;
  /** Other workers have stages before the last: they get the caches, or all begin again. */
  moveStages?(): void;
}

/** A stage that is not the last. */
export interface StageHost {
  /** What all stages of a model have in common. */
  readonly build: string;
  /** Serves the frames of this stream, in place of the one before it. */
  join(frames: Duplex): Promise<void>;
  /** Resolves when the stream has ended; undefined where there is none. */
  left(): Promise<void> | undefined;
}

/** Resolves with the streams to all stages before the last; rejects where one does not serve. */
export type PeerStages = (
  stage: ModelStage,
  build: string,
  known: KnownPeers,
) => Promise<readonly JoinedStage[]>;

/** What a worker does for models that workers divide. */
export interface StagePorts {
  /** Reads a model's header and digests: of all its file the first time, which may take long. */
  index(weights: WeightsSpec, pull: PullHow): Promise<IndexedModel>;
  /** Divides a model between workers. */
  plan(
    model: IndexedModel,
    options: EngineOptions,
    workers: readonly ShardWorker[],
    maxStages: number,
  ): Promise<ModelPlan>;
  /** Memory of the whole model in one worker; `unprocessable` where workers cannot divide it. */
  wholeBytes(weights: WeightsSpec, options: EngineOptions, pull: PullHow): Promise<number>;
  /** The text of an index that this worker has. */
  heldIndex(digest: string): Promise<string>;
  /** A range of a model's file, as far as this worker has it. */
  heldRange(digest: string, offset: number, bytes: number): AsyncIterable<Uint8Array>;
}

/**
 * Resolves with the path of the verified weights file, or of a stage's part of it; rejects with an
 * AppError.
 */
export type WeightsPuller = (weights: WeightsSpec, pull: PullHow) => Promise<string>;

export interface PullHow {
  readonly signal: AbortSignal;
  readonly onProgress: (progress: PullState) => void;
  /** Reads artifacts of jobs; absent outside a cluster. */
  readonly readArtifact?: ArtifactBytes | undefined;
  /** The part that is pulled; absent for all. */
  readonly stage?: ModelStage | undefined;
  /** The addresses of workers that may have parts of these weights. */
  readonly holders?: readonly string[] | undefined;
  /** These workers. */
  readonly peers?: readonly WeightsPeer[] | undefined;
  /** Called once for each source of a part that fails. */
  readonly onFault?: ((source: string, reason: string) => void) | undefined;
}

export interface PullState {
  readonly pulledBytes: number;
  readonly totalBytes: number;
  readonly source: string;
}
