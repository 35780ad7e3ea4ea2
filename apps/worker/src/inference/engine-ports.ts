import type { AppError } from "@heddle/base/errors";
import type {
  DeploymentSpec,
  Engine,
  EngineEventSink,
  WeightsSpec,
} from "@heddle/contracts/engine";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";

/** What the worker needs from libs/engines; tests give it a scripted engine through the same port. */
export interface EnginePorts {
  readonly startEngine: EngineFactory;
  readonly pullWeights: WeightsPuller;
}

/**
 * Starts an engine and resolves when it can take requests; rejects with an AppError. `onExit` is
 * called at most once, when the engine ends without `close` having been asked for. `signal` ends the
 * loading; the promise rejects then.
 */
export type EngineFactory = (start: {
  readonly spec: DeploymentSpec;
  readonly modelPath: string;
  readonly sink: EngineEventSink;
  readonly onExit: (error: AppError) => void;
  /** Called at each crash after which the engine starts anew by itself. */
  readonly onRestart: (error: AppError) => void;
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
    /** How artifacts of jobs are had; absent outside a cluster. */
    readonly readArtifact?: ArtifactBytes | undefined;
  },
) => Promise<string>;

export interface PullState {
  readonly pulledBytes: number;
  readonly totalBytes: number;
  readonly source: string;
}
