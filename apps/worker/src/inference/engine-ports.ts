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
import type { ModelPlan } from "@heddle/engines/shards/plan-model";
import type { ShardWorker } from "@heddle/engines/shards/plan-stages";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";

/** The worker's port to libs/engines; tests supply a scripted engine through it. */
export interface EnginePorts {
  readonly startEngine: EngineFactory;
  readonly pullWeights: WeightsPuller;
  /** Absent where models are not divided. */
  readonly planStages?: StagePlanner | undefined;
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
  /** Called while it waits for others at its start, with the reason. */
  readonly onWaiting?: (reason: string) => void;
  /** Called when it takes requests again after that. */
  readonly onRecovered: () => void;
  readonly signal: AbortSignal;
  /** Opens the streams to the other stages of a model; absent outside a cluster. */
  readonly joinPeers?: PeerStages | undefined;
  /** The stage as it is now: other workers may have got the others. */
  readonly stage?: () => ModelStage | undefined;
}) => Promise<WorkerEngine>;

/** An engine, or the part of one that another worker drives. */
export interface WorkerEngine extends Engine {
  readonly stage?: StageHost | undefined;
  /** Joins the stages before the last again, since other workers have them. */
  rejoin?(): void;
}

/** A stage that is not the last. */
export interface StageHost {
  /** What all stages of a model have in common. */
  readonly build: string;
  /** Serves the frames of this stream, in place of the one before it. */
  join(frames: Duplex): Promise<void>;
}

/** Resolves with the streams to all stages before the last; rejects where one does not serve. */
export type PeerStages = (stage: ModelStage, build: string) => Promise<readonly Duplex[]>;

/** Divides the model of a file between workers. */
export type StagePlanner = (
  path: string,
  options: EngineOptions,
  workers: readonly ShardWorker[],
  maxStages: number,
) => Promise<ModelPlan>;

/** Resolves with the path of the verified weights file; rejects with an AppError. */
export type WeightsPuller = (
  weights: WeightsSpec,
  options: {
    readonly signal: AbortSignal;
    readonly onProgress: (progress: PullState) => void;
    /** Reads artifacts of jobs; absent outside a cluster. */
    readonly readArtifact?: ArtifactBytes | undefined;
  },
) => Promise<string>;

export interface PullState {
  readonly pulledBytes: number;
  readonly totalBytes: number;
  readonly source: string;
}
