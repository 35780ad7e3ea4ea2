import { AppError } from "@heddle/base/errors";

/** The first `dimensions` numbers, scaled to length 1 as OpenAI's vectors are. */
export function normalised(values: Float32Array, dimensions = values.length): Float32Array {
  const kept = values.subarray(0, dimensions);
  let sum = 0;
  for (const value of kept) sum += value * value;
  const scale = sum > 0 ? 1 / Math.sqrt(sum) : 0;
  return kept.map((value) => value * scale);
}

/** The same bits in both formats: a JSON number has all digits of its 32-bit float. */
export function vectorJson(values: Float32Array, format: "float" | "base64"): string {
  if (format === "float") return `[${values.join(",")}]`;
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => {
    bytes.writeFloatLE(value, i * 4);
  });
  return `"${bytes.toString("base64")}"`;
}

/** Bounds the vectors that all calls hold before they are sent. */
export class VectorMemory {
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Throws `overloaded` where there is no room. */
  take(bytes: number): void {
    if (this.#bytes + bytes > this.#maxBytes) {
      const message =
        "This master holds too many embeddings of unfinished calls. Try again shortly.";
      throw new AppError("overloaded", message, { retryAfterMs: 1000 });
    }
    this.#bytes += bytes;
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}
