import type { GpuSplit } from "@heddle/contracts/models/model-division";
import type { CutRule } from "../cut-rules.ts";
import type { BlockRange } from "../shard-cut.ts";

/** How the process of a stage is started. All stages of a model have the same numbers of the cache. */
export interface StageStart extends BlockRange {
  /** The shard's file. */
  readonly path: string;
  readonly rule: CutRule;
  readonly threads: number;
  readonly kvTokens: number;
  readonly maxSequences: number;
  /** `cpu`, or indexes of GPUs joined by commas. */
  readonly device?: string | undefined;
  readonly gpuLayers?: number | undefined;
  readonly split?: GpuSplit | undefined;
}

/** Where the process reads frames and writes them. */
export const STAGE_FD = 4;

/** What the process says over its channel, once. */
export type StageMessage =
  | { readonly kind: "ready"; readonly device: string }
  | { readonly kind: "failed"; readonly code: string; readonly message: string };
