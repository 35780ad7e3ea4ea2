import type { AppError } from "@heddle/base/errors";
import type {
  EngineEvent,
  GenerateRequest,
  ReplicaStatus,
  WeightsSpec,
} from "@heddle/contracts/engine";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import type { ControlState } from "@heddle/control/state";

/** The joints between the master's HTTP side, its dispatch and its replicated state. */

/** The replicated state as this master sees it, and the only way to change it. */
export interface ControlPlane {
  /** Read-only for everyone but the log's apply. */
  readonly state: ControlState;
  /** Resolves when the command is durable and applied; rejects with an AppError. */
  propose(command: ControlCommand): Promise<ControlReply>;
  /** Called after each applied command. Returns the unsubscribe function. */
  onApplied(listener: (command: ControlCommand) => void): () => void;
  /** Why no command is taken any more, where that is so: then this master is not ready. */
  readonly fault?: AppError | undefined;
  close(): Promise<void>;
}

export interface InferenceCall {
  readonly requestId: string;
  readonly deployment: string;
  readonly request: GenerateRequest;
  /** The API key's id: engines share fairly between these. */
  readonly fairKey: string;
  readonly deadlineMs: number;
  readonly priority: number;
}

/** A started call: which worker answers, and its events. Leaving the iteration cancels the call. */
export interface InferenceAnswer {
  readonly node: string;
  readonly events: AsyncIterable<EngineEvent>;
}

export interface InferenceDispatch {
  /**
   * Picks a replica, waiting in a bounded queue while none can take the call, and resolves with the
   * first event at hand (so that a refusal still has its HTTP status). Retries another replica only
   * before that. Rejects with an AppError: `overloaded` (with retryAfterMs), `model_loading`,
   * `unavailable`, `deadline_exceeded`, `cancelled`, or what the engine refused with.
   */
  start(call: InferenceCall, signal: AbortSignal): Promise<InferenceAnswer>;
}

export interface NodeView {
  readonly id: string;
  readonly kind: "worker" | "parameter-server";
  readonly name: string;
  readonly address: string;
  readonly version: string;
  readonly attachedAtMs: number;
  readonly lastSeenMs: number;
  readonly cpuPercent: number;
  readonly cpuCount: number;
  readonly memoryBytes: number;
  readonly memoryUsedBytes: number;
  readonly gpus: readonly GpuView[];
  readonly replicas: readonly ReplicaStatus[];
}

export interface GpuView {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  readonly memoryBytes: number;
  readonly memoryUsedBytes: number;
  readonly utilizationPercent: number;
  readonly temperatureCelsius: number;
  readonly powerWatts: number;
}

export interface PullProgress {
  readonly pulledBytes: number;
  readonly totalBytes: number;
  readonly source: string;
  readonly done: boolean;
}

/** The nodes attached to this master now; volatile, never in the replicated state. */
export interface NodeDirectory {
  nodes(): readonly NodeView[];
  /** Has a worker pull weights into its cache. Rejects with `unavailable` where no worker is. */
  pull(weights: WeightsSpec, signal: AbortSignal): AsyncIterable<PullProgress>;
}

/** The injection tokens of the ports, which as interfaces have no value at run time. */
export const CONTROL_PLANE = Symbol("ControlPlane");
export const NODE_DIRECTORY = Symbol("NodeDirectory");
