import { AppError } from "@heddle/base/errors";
import type { GgufValue } from "../gguf/gguf-format.ts";
import type { GgufFile } from "../gguf/gguf-reader.ts";

/** How models of an architecture may be cut between blocks; measured with llama.cpp v0.5.0. */
export interface CutRule {
  /** A cut is at a multiple of this, since what a block computes repeats so by its index. */
  readonly period: number;
  /** The library copies the input of a block out (`t_layer_inp`); elsewhere it ends the process. */
  readonly hasTap: boolean;
  /** Numbers of blocks from which the library guesses what the file does not say. */
  readonly guessed: readonly number[];
}

const ANY: CutRule = { period: 1, hasTap: false, guessed: [] };

/**
 * Keyed by `general.architecture`. Only these were compared with the whole model at every cut. Not gemma
 * and gemma2: the library scales rows that it is given, which cannot be undone without rounding.
 */
const CUT_RULES: ReadonlyMap<string, CutRule> = new Map([
  ["llama", { ...ANY, hasTap: true }],
  ["qwen2", ANY],
  ["qwen3", { ...ANY, hasTap: true }],
  ["qwen3moe", { ...ANY, hasTap: true }],
  ["granite", ANY],
  ["phi3", ANY],
  // The last block of each period attends to all tokens, the others within a window.
  ["gemma3", { ...ANY, period: 6, guessed: [62] }],
  ["cohere2", { ...ANY, period: 4 }],
  // The last block of each period has no positions.
  ["smollm3", { ...ANY, period: 4 }],
]);

/** A model that may be cut. */
export interface CuttableModel {
  readonly file: GgufFile;
  readonly architecture: string;
  readonly rule: CutRule;
  readonly blocks: number;
  /** The blocks before which it may be cut, ascending. */
  readonly cuts: readonly number[];
}

/** The rule of a model or of a shard. Throws an AppError `unprocessable`. */
export function cutRuleOf({ metadata }: GgufFile): CutRule {
  const architecture = String(metadata.get("general.architecture")?.value);
  const rule = CUT_RULES.get(architecture);
  if (rule) return rule;
  const known = [...CUT_RULES.keys()].join(", ");
  throw uncuttable(`its architecture is ${architecture}, and those that may be are ${known}`);
}

/** Throws an AppError `unprocessable` that says why the model cannot be cut. */
export function cuttableModel(file: GgufFile): CuttableModel {
  const rule = cutRuleOf(file);
  const architecture = String(file.metadata.get("general.architecture")?.value);
  const blocks = numberValue(file.metadata.get(`${architecture}.block_count`));
  if (!Number.isSafeInteger(blocks) || blocks < 2) throw uncuttable(`it has ${blocks} blocks`);
  if (rule.guessed.includes(blocks)) {
    throw uncuttable(`the library guesses what ${architecture} of ${blocks} blocks computes`);
  }
  const unknown = file.tensors.find(({ sizeBytes }) => sizeBytes === undefined);
  if (unknown) throw uncuttable(`${unknown.name} is of the unknown ${unknown.type}`);
  const said = numberValue(file.metadata.get(`${architecture}.attention.sliding_window_pattern`));
  const period = said >= 1 ? said : rule.period;
  const cuts = Array.from({ length: blocks - 1 }, (_, i) => i + 1).filter(
    (block) => block % period === 0,
  );
  if (cuts.length === 0) throw uncuttable(`it has ${blocks} blocks, which repeat by ${period}`);
  return { file, architecture, rule, blocks, cuts };
}

/** The value as a number; NaN for none. */
export function numberValue(value: GgufValue | undefined): number {
  return value === undefined || value.type === "array" ? Number.NaN : Number(value.value);
}

function uncuttable(why: string): AppError {
  return new AppError("unprocessable", `the model cannot be divided between workers: ${why}`);
}
