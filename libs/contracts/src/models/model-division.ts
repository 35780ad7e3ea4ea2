/** How the stages of a divided model send each other numbers; `f32` if an option leaves it open. */
export const STAGE_DTYPES = ["f32", "bf16"] as const;

export type StageDtype = (typeof STAGE_DTYPES)[number];

/** How llama.cpp divides a model over GPUs: whole layers, rows of tensors, or not at all. */
export const SPLIT_MODES = ["none", "layer", "row"] as const;

type SplitMode = (typeof SPLIT_MODES)[number];

/** How a model is divided over several GPUs. */
export interface GpuSplit {
  readonly mode: SplitMode;
  /** The share of each; empty for shares by their free memory. */
  readonly shares: readonly number[];
  /** The one with the small tensors, by its place among them. */
  readonly mainGpu: number;
}

/** `sharded`: workers divide the model. `auto`: only those replicas that no single one can hold. */
export const PLACEMENT_MODES = ["auto", "whole", "sharded"] as const;

export type PlacementMode = (typeof PLACEMENT_MODES)[number];

export interface ModelPlacement {
  readonly mode: PlacementMode;
  readonly maxStages?: number | undefined;
}

/** Consecutive blocks of a model, from the first to before the other, which one worker computes. */
export interface ModelStage {
  readonly from: number;
  readonly to: number;
  /** The node with the last stage, which takes the requests and drives the others. */
  readonly driver: string;
  /** The stages before the last, in order; empty for all but the last. */
  readonly peers: readonly StagePeer[];
  /** Planned, of the worker. */
  readonly memoryBytes: number;
  /** These are the same for all stages. */
  readonly contextTokens: number;
  readonly kvTokens: number;
  readonly maxSequences: number;
  /** The digest that names the index of the model's tensors; empty if not known. */
  readonly index: string;
}

export interface StagePeer {
  readonly node: string;
  /** host:port */
  readonly address: string;
  /** The stage's key on that worker. */
  readonly deployment: string;
  readonly from: number;
  readonly to: number;
  /** Planned, of that worker. */
  readonly memoryBytes: number;
}

/** A node with another stage that the worker with the last one does not reach. */
export interface UnreachablePeer {
  readonly node: string;
  readonly forMs: number;
}

/** What a stage has done with its time since it was loaded. */
export interface StageLoad {
  /** Frames that it has computed. */
  readonly steps: number;
  readonly busyMs: number;
  /** Without a frame, between two that followed each other soon. */
  readonly idleMs: number;
  /** For the last stage: hops of a frame between workers, and their time beside all computing. */
  readonly hops: number;
  readonly hopMicros: number;
}
