import { randomInt } from "node:crypto";
import type { Batch } from "../../llama/engine-thread/batch.ts";
import type { KvSequences } from "../../llama/kv-cache/prefix-tree.ts";
import type { FramePipe } from "./frame-pipe.ts";
import {
  CHANGE_NUMBERS,
  endsEpoch,
  MAX_CHANGES,
  REMOVES,
  ROW_NUMBERS,
  STAGE_OK,
  type StageFrame,
} from "./stage-frame.ts";

/** In place of an end: all that follows. */
const TO_THE_END = -1;
const NO_ROWS = new Int32Array(0);
const NO_HIDDEN = new Float32Array(0);

/**
 * The stages before the last one, as its thread drives them. They receive every change of its cache
 * and every batch in its order, so that all caches hold the same tokens.
 */
export class StageRing implements KvSequences {
  readonly #pipe: Pick<FramePipe, "read" | "write">;
  readonly #rowLength: number;
  #epoch = newEpoch();
  #step = 0;
  /** Since the last frame. */
  #changes: number[] = [];
  /** The stages have lost all tokens since the last decode. */
  #isLost = false;

  /** `rowLength` is that of the residual stream. */
  constructor(pipe: Pick<FramePipe, "read" | "write">, rowLength: number) {
    this.#pipe = pipe;
    this.#rowLength = rowLength;
  }

  copy(from: number, to: number, begin: number, end: number): void {
    this.#change(to, from, begin, end);
  }

  remove(sequence: number, begin: number, end: number): void {
    this.#change(sequence, REMOVES, begin, end);
  }

  /**
   * Has the stages decode the batch; gives what left the last of them, until the next call. `full`
   * where one had no cells for it: then none keeps any of it. `lost` where the stages have no tokens
   * any more. Throws where they are gone for good.
   */
  decode(batch: Pick<Batch, "rows" | "size">): Float32Array | "full" | "lost" {
    const answer = this.#isLost ? undefined : this.#send(batch.rows());
    if (!answer) {
      this.#isLost = false;
      return "lost";
    }
    const { status, hidden } = answer;
    if (status !== STAGE_OK) {
      this.undo(batch);
      return "full";
    }
    if (hidden.length === batch.size * this.#rowLength) return hidden;
    throw new Error(
      `the stage before gave ${hidden.length} numbers for ${batch.size} rows of ${this.#rowLength}; all stages must be of one model`,
    );
  }

  /** Takes the batch away from the stages that have it. */
  undo(batch: Pick<Batch, "rows">): void {
    const rows = batch.rows();
    const seen = new Set<number>();
    for (let at = 0; at < rows.length; at += ROW_NUMBERS) {
      const [position = 0, sequence = 0] = rows.subarray(at + 1, at + ROW_NUMBERS);
      // Positions of a sequence ascend.
      if (!seen.has(sequence)) this.remove(sequence, position, TO_THE_END);
      seen.add(sequence);
    }
  }

  #change(...numbers: [number, number, number, number]): void {
    this.#changes.push(...numbers);
    // A frame holds no more of them.
    if (this.#changes.length < MAX_CHANGES * CHANGE_NUMBERS) return;
    if (!this.#send(NO_ROWS)) this.#isLost = true;
  }

  /** Sends a frame and waits until it has gone round; undefined where a stage was lost. */
  #send(rows: Int32Array): StageFrame | undefined {
    const [epoch, step] = [this.#epoch, this.#step++];
    const changes = Int32Array.from(this.#changes);
    this.#changes = [];
    this.#pipe.write({ epoch, step, status: STAGE_OK, changes, rows, hidden: NO_HIDDEN });
    for (;;) {
      const frame = this.#pipe.read();
      if (!frame) throw new Error("the stages of the model are gone");
      // Of an earlier epoch, whose frames were still under way.
      if (frame.epoch !== epoch) continue;
      if (endsEpoch(frame)) {
        this.#begin();
        return undefined;
      }
      if (frame.step === step) return frame;
      throw new Error(`the stages answered step ${frame.step} in place of ${step}`);
    }
  }

  /** Another epoch, in which the stages begin with no tokens. */
  #begin(): void {
    this.#epoch = newEpoch();
    this.#step = 0;
    this.#changes = [];
  }
}

function newEpoch(): number {
  return randomInt(1, 2 ** 32 - 1);
}
