import { AppError } from "@heddle/base/errors";
import { KERNEL_BLOCK } from "@heddle/kernels/kernels";

/** The encoding of parts; the worker keeps the error and adds it to its next part. */
export type Compression = "none" | "bf16" | "int8" | "topk";

/** Throws an AppError `invalid_value`. */
export function parseCompression(text: string): Compression {
  switch (text) {
    case "":
    case "none":
      return "none";
    case "bf16":
    case "int8":
    case "topk":
      return text;
    default:
      throw new AppError(
        "invalid_value",
        `there is no compression "${text}": use none, bf16, int8 or topk`,
      );
  }
}

/**
 * The encoding of pulls: none, or after the first pull int8 changes since the last one. The shard
 * keeps the error for the next pull.
 */
export type PullCompression = "none" | "int8";

/** Throws an AppError `invalid_value`. */
export function parsePullCompression(text: string): PullCompression {
  if (text === "" || text === "none") return "none";
  if (text === "int8") return text;
  throw new AppError("invalid_value", `parameters are not pulled as "${text}": use none or int8`);
}

/** Elements that are encoded, sent and added at once. */
export const SLICE_ELEMENTS = 128 * 1024;

/** Bytes of a slice: int8 scales precede its integers. */
export function compressedBytes(
  compression: Exclude<Compression, "topk">,
  elements: number,
): number {
  if (compression === "none") return elements * 4;
  if (compression === "bf16") return elements * 2;
  return elements + scaleBytes(elements);
}

/** The scales of a slice's blocks of 256, padded so that the integers begin at a multiple of 16. */
export function scaleBytes(elements: number): number {
  return Math.ceil(((elements / KERNEL_BLOCK) * 4) / 16) * 16;
}

/** Bytes of a whole part; of top-k the maximum. */
export function partBytes(compression: Compression, elements: number): number {
  if (compression === "topk") return elements * PAIR_BYTES;
  const whole = Math.floor(elements / SLICE_ELEMENTS);
  const rest = elements % SLICE_ELEMENTS;
  return whole * compressedBytes(compression, SLICE_ELEMENTS) + compressedBytes(compression, rest);
}

/** An index and a value of top-k. */
export const PAIR_BYTES = 8;
