import { open } from "node:fs/promises";
import { AppError } from "@heddle/base/errors";
import { fileRange } from "../../weights/ranges/file-ranges.ts";
import type { TensorIndex } from "../../weights/ranges/tensor-index.ts";
import { StageFolder } from "./stage-folder.ts";

/** Models whose layout is remembered: it takes some 100 ms to find out. */
const MAX_LAYOUTS = 4;
/** Bytes between tensors are padding, which no one has and no one needs. */
const MAX_PADDING_BYTES = 1024 * 1024;

/** Bytes of a model's file that a file of this machine has, at another place. */
interface HeldRange {
  readonly source: number;
  readonly bytes: number;
  readonly path: string;
  readonly target: number;
}

interface Layout {
  readonly files: string;
  readonly index: TensorIndex;
  /** Ascending in the model's file. */
  readonly ranges: readonly HeldRange[];
}

/**
 * Reads models that are divided from what this machine has of them: shards of any cut, or the whole
 * file. The reader verifies what it gets by the index.
 */
export class HeldWeights {
  readonly #directory: string;
  /** Keyed by digest of the index, the one used last at the end. */
  readonly #layouts = new Map<string, Layout>();

  /** `directory` is that of all models. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The text of an index. Throws `not_found`. */
  async index(digest: string): Promise<string> {
    const found = await new StageFolder(this.#directory, digest).index();
    if (found) return found.text;
    throw new AppError("not_found", "this machine does not have the index of these weights");
  }

  /**
   * The bytes of a range of the model's file, as far as they are here. Throws `not_found` where the
   * next ones are not, and `invalid_value` where the model has none there.
   */
  async *read(digest: string, offset: number, bytes: number): AsyncGenerator<Uint8Array, void> {
    const folder = new StageFolder(this.#directory, digest);
    const whole = await folder.whole();
    if (whole !== undefined) return yield* readFile(whole, offset, bytes);
    const { index, ranges } = await this.#layout(folder);
    const end = offset + bytes;
    if (end > index.sizeBytes) {
      throw new AppError("invalid_value", `the model's file has ${index.sizeBytes} bytes`);
    }
    let at = offset;
    for (const { source, bytes: length, path, target } of ranges) {
      if (source + length <= at) continue;
      if (at >= end) return;
      if (source > at) {
        const padding = Math.min(source, end) - at;
        if (padding > MAX_PADDING_BYTES || hasPiece(index, at, at + padding)) throw absent(at);
        yield new Uint8Array(padding);
        at += padding;
      }
      const upTo = Math.min(source + length, end);
      if (at < upTo) yield* readFile(path, target + at - source, upTo - at);
      at = Math.max(at, upTo);
    }
    if (at < end) throw absent(at);
  }

  async #layout(folder: StageFolder): Promise<Layout> {
    const { digest } = folder;
    const known = this.#layouts.get(digest);
    const found = known ?? (await folder.index());
    const model = found && (await folder.model(found.index));
    if (!model) throw new AppError("not_found", "this machine has nothing of these weights");
    const shards = await folder.shards(model);
    const files = shards.map(({ path }) => path).join();
    if (known?.files === files) return known;
    const ranges = shards
      .flatMap(({ path, cut }) => cut.ranges.map((range) => ({ ...range, path })))
      .toSorted((a, b) => a.source - b.source);
    const header = found.index.pieces[0]!;
    ranges.unshift({ source: 0, target: 0, bytes: header.bytes, path: folder.headerPath });
    const layout = { files, index: found.index, ranges };
    this.#layouts.delete(digest);
    this.#layouts.set(digest, layout);
    if (this.#layouts.size > MAX_LAYOUTS) {
      const [oldest = ""] = this.#layouts.keys();
      this.#layouts.delete(oldest);
    }
    return layout;
  }
}

async function* readFile(
  path: string,
  offset: number,
  bytes: number,
): AsyncGenerator<Uint8Array, void> {
  const file = await open(path).catch((cause: unknown) => {
    throw new AppError("not_found", "a file of these weights was just removed", { cause });
  });
  try {
    yield* fileRange(file, offset, bytes);
  } finally {
    await file.close();
  }
}

function hasPiece({ pieces }: TensorIndex, from: number, to: number): boolean {
  return pieces.some(({ offset, bytes }) => offset < to && offset + bytes > from);
}

function absent(at: number): AppError {
  return new AppError("not_found", `this machine does not have the bytes at ${at}`);
}
