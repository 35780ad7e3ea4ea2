import type { AppError } from "@heddle/base/errors";
import type {
  DeploymentSpec,
  Engine,
  EngineEventSink,
  WeightsSpec,
} from "@heddle/contracts/engine";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";

/** The worker's port to libs/engines; tests supply a scripted engine through it. */
export interface EnginePorts {
  readonly startEngine: EngineFactory;
  readonly pullWeights: WeightsPuller;
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
  /** Called when it takes requests again after that. */
  readonly onRecovered: () => void;
  readonly signal: AbortSignal;
}) => Promise<Engine>;

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
