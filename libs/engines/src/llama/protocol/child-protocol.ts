import type {
  DeterministicMode,
  EngineEvent,
  EngineFailure,
  EngineInfo,
  EngineLoad,
  EngineRequest,
  KvDtype,
  SubmitOptions,
} from "@heddle/contracts/engine";
import type { GpuSplit, StageDtype } from "@heddle/contracts/models/model-division";

/** How an engine process is started; everything that hardware decides is settled. */
export interface ChildStart {
  readonly modelPath: string;
  readonly device: string;
  readonly gpuLayers: number;
  /** Over several devices; absent for one. */
  readonly split?: GpuSplit | undefined;
  readonly threads: number;
  /** The stages of the model: more than one where others compute before it, over STAGES_FD. */
  readonly stages?: number | undefined;
  /** Blocks of the stages before this one. */
  readonly earlierBlocks?: number | undefined;
  /** Calls under way at once; as many as stages if absent. */
  readonly callsAtOnce?: number | undefined;
  /** The type of what the stages send; `f32` if absent. */
  readonly stageDtype?: StageDtype | undefined;
  /** The type of the KV cache; `f16` if absent. */
  readonly kvDtype?: KvDtype | undefined;
  readonly maxQueued: number;
  readonly prefillBudgetTokens: number;
  readonly draftTokens?: number | undefined;
  readonly deterministic: DeterministicMode;
  readonly contextShift: boolean;
  readonly contextTokens?: number | undefined;
  readonly kvTokens?: number | undefined;
  readonly maxSequences?: number | undefined;
  /** Replaces the template in the file. */
  readonly chatTemplate?: string | undefined;
}

/** What the worker agent sends to an engine process; `start` comes first and once. */
export type ParentMessage =
  | { readonly kind: "start"; readonly start: ChildStart }
  | {
      readonly kind: "submit";
      readonly id: number;
      readonly request: EngineRequest;
      readonly options: SubmitOptions;
    }
  | { readonly kind: "cancel"; readonly id: number }
  | { readonly kind: "ping" };

/** The load but for what only the parent knows. */
export type ChildLoad = Required<Omit<EngineLoad, "restarts" | "stage">>;

/** Where an engine process writes the frames of its events (event-frames.ts), at most one a step. */
export const EVENTS_FD = 4;

/** Where the frames of the other stages come and go (shards/ring/stage-frame.ts). */
export const STAGES_FD = 5;

/** The events of one step, or of something that happened between two. */
export interface ChildEvents {
  readonly events: readonly EngineEvent[];
  readonly load: ChildLoad;
}

/**
 * What an engine process sends: `ready` once, and a `pong` from its main thread for each ping,
 * whatever the engine thread does. Events come over a pipe of their own, see EVENTS_FD.
 */
export type ChildMessage =
  | { readonly kind: "ready"; readonly info: EngineInfo; readonly load: ChildLoad }
  | { readonly kind: "pong" }
  | { readonly kind: "fatal"; readonly error: EngineFailure };
