import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { digestedBody, writeDigested } from "../checkpoints/digested-file.ts";
import { DamagedCheckpoints, UnwritableFile } from "../trainer-errors.ts";

/** What of a step is kept for its next attempt. */
export interface BlockCheckpoint {
  readonly step: number;
  /** What the block yielded, as JSON. */
  readonly state: string;
  /** The outputs that it had yielded before, by name. */
  readonly outputs: ReadonlyMap<string, Uint8Array>;
}

/** A worker removes the older ones that it reads of, a few times a second. */
const MIN_INTERVAL_MS = 100;
const NAME = /^block-(\d{1,9})-(\d{1,9})$/;

/**
 * A step's checkpoints: each a file with a line of JSON, the outputs and a digest. The name has the
 * attempt, so that an earlier one that is still ending replaces none.
 */
export class BlockCheckpoints {
  readonly #directory: string;
  readonly #attempt: number;
  #count = 0;
  #savedAtMs = Number.NEGATIVE_INFINITY;

  constructor(directory: string, attempt: number) {
    this.#directory = directory;
    this.#attempt = attempt;
  }

  /** Resolves with its name once it is durable; at most ten are written in a second. */
  async save({ step, state, outputs }: BlockCheckpoint): Promise<string> {
    const waitMs = this.#savedAtMs + MIN_INTERVAL_MS - performance.now();
    if (waitMs > 0) await delay(waitMs);
    const sizes = [...outputs].map(([name, { byteLength }]) => [name, byteLength]);
    const head = Buffer.from(`${JSON.stringify({ step, state, outputs: sizes })}\n`);
    const name = `block-${this.#attempt}-${++this.#count}`;
    const path = join(this.#directory, name);
    await writeDigested(path, Buffer.concat([head, ...outputs.values()])).catch((cause: Error) => {
      throw new UnwritableFile(`the checkpoint ${path}`, cause);
    });
    this.#savedAtMs = performance.now();
    return name;
  }

  /**
   * The named one or, where it is damaged, the latest before it. Undefined where this worker has none;
   * rejects where all are damaged.
   */
  async find(name: string): Promise<BlockCheckpoint | undefined> {
    const names = (await readdir(this.#directory)).filter(
      (each) => NAME.test(each) && order(each) <= order(name),
    );
    for (const each of names.toSorted((a, b) => order(b) - order(a))) {
      const bytes = await readFile(join(this.#directory, each)).catch(() => undefined);
      const body = bytes && digestedBody(bytes);
      if (body) return checkpointOf(body);
    }
    if (!names.includes(name)) return undefined;
    const message = `none of the step's checkpoints in ${this.#directory} is intact: submit it again`;
    throw new DamagedCheckpoints("invalid_value", message);
  }
}

/** The order by attempt and count. */
function order(name: string): number {
  const [, attempt = 0, count = 0] = NAME.exec(name) ?? [];
  return Number(attempt) * 1e9 + Number(count);
}

function checkpointOf(body: Buffer): BlockCheckpoint {
  const end = body.indexOf("\n");
  const { step, state, outputs } = JSON.parse(body.toString("utf8", 0, end)) as {
    readonly step: number;
    readonly state: string;
    readonly outputs: readonly (readonly [string, number])[];
  };
  let at = end + 1;
  const found = new Map<string, Uint8Array>();
  for (const [name, bytes] of outputs) {
    found.set(name, body.subarray(at, at + bytes));
    at += bytes;
  }
  return { step, state, outputs: found };
}
