import { randomInt } from "node:crypto";
import type { StageDtype } from "@heddle/contracts/models/model-division";
import type { Batch } from "../../llama/engine-thread/batch.ts";
import type { KvSequences } from "../../llama/kv-cache/prefix-tree.ts";
import { adapterFrames } from "./adapter-frames.ts";
import type { FramePipe } from "./frame-pipe.ts";
import {
  CHANGE_NUMBERS,
  endsEpoch,
  MAX_CHANGES,
  makeChanges,
  REMOVES,
  ROW_NUMBERS,
  STAGE_GIVES,
  STAGE_OK,
  STAGE_UNFIT,
  type StageFrame,
} from "./stage-frame.ts";

/** In place of an end: all that follows. */
const TO_THE_END = -1;
const NO_ROWS = new Int32Array(0);
const NO_HIDDEN = new Float32Array(0);

/** The cache of the last stage, which changes as those of the others do. */
export interface OwnCache extends KvSequences {
  /** Forgets all tokens. */
  clear(): void;
}

/** The stream that the stages send on: the numbers of a row, and how they are sent. */
export interface Residual {
  readonly rowLength: number;
  readonly dtype: StageDtype;
}

/** A LoRA adapter that rows are computed with. */
export interface RingAdapter {
  /** Not 0. */
  readonly number: number;
  readonly scale: number;
  /** The bytes of its file. */
  readonly read: () => Uint8Array;
}

/** A frame that has not returned. */
interface SentFrame {
  readonly step: number;
  readonly changes: Int32Array;
  /** Rows that are decoded. */
  readonly hasRows: boolean;
}

/**
 * The stages before the last one, as its thread drives them: several batches may be under way, which
 * come back in their order. All stages, the last one too, make every change of the cache between the same
 * two batches, so that all caches hold the same tokens.
 */
export class StageRing implements KvSequences {
  readonly #pipe: Pick<FramePipe, "read" | "write">;
  readonly #residual: Residual;
  readonly #own: OwnCache;
  #epoch = newEpoch();
  #step = 0;
  /** Since the last frame. */
  #changes: number[] = [];
  #sent: SentFrame[] = [];
  /** Adapters that the stages have. */
  readonly #given = new Set<number>();

  constructor(pipe: Pick<FramePipe, "read" | "write">, residual: Residual, own: OwnCache) {
    this.#pipe = pipe;
    this.#residual = residual;
    this.#own = own;
  }

  copy(from: number, to: number, begin: number, end: number): void {
    this.#change(to, from, begin, end);
  }

  remove(sequence: number, begin: number, end: number): void {
    this.#change(sequence, REMOVES, begin, end);
  }

  /** Has the stages decode the batch, of sequences that no other batch under way has. */
  send(batch: Pick<Batch, "rows">, adapter?: RingAdapter): void {
    if (adapter && !this.#given.has(adapter.number)) {
      this.#give(adapter.number, adapter.read());
      this.#given.add(adapter.number);
    }
    this.#send({ rows: batch.rows(), adapter: adapter?.number ?? 0, scale: adapter?.scale ?? 0 });
  }

  /** The adapter is freed. */
  forget(adapter: number): void {
    if (this.#given.delete(adapter)) this.#give(adapter, new Uint8Array(0));
  }

  #give(adapter: number, file: Uint8Array): void {
    for (const frame of adapterFrames(adapter, file)) {
      this.#send({ ...frame, status: STAGE_GIVES, dtype: "f32" });
    }
  }

  /**
   * What left the last of the stages for the oldest batch that was sent, until the next call. `full`
   * where one had no cells for it, and `unfit` where one cannot use its adapter: none keeps any of it.
   * `lost` where the stages have no tokens any more, and no batch is under way. Throws where they are
   * gone for good.
   */
  receive(batch: Pick<Batch, "rows" | "size">): Float32Array | "full" | "unfit" | "lost" {
    const answer = this.#receive();
    if (!answer) return "lost";
    const { status, hidden } = answer;
    if (status !== STAGE_OK) {
      this.undo(batch);
      return status === STAGE_UNFIT ? "unfit" : "full";
    }
    const { rowLength } = this.#residual;
    if (hidden.length === batch.size * rowLength) return hidden;
    throw new Error(
      `the stage before gave ${hidden.length} numbers for ${batch.size} rows of ${rowLength}; all stages must be of one model`,
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
    if (this.#changes.length >= MAX_CHANGES * CHANGE_NUMBERS) this.#send({ rows: NO_ROWS });
  }

  #send(own: Partial<StageFrame> & Pick<StageFrame, "rows">): void {
    const [epoch, step] = [this.#epoch, this.#step++];
    const changes = Int32Array.from(this.#changes);
    this.#changes = [];
    const isDecoded = own.status !== STAGE_GIVES && own.rows.length > 0;
    this.#sent.push({ step, changes, hasRows: isDecoded });
    this.#pipe.write({
      epoch,
      step,
      status: STAGE_OK,
      micros: 0,
      changes,
      adapter: 0,
      scale: 0,
      dtype: this.#residual.dtype,
      hidden: NO_HIDDEN,
      ...own,
    });
  }

  /** Waits until the oldest frame with rows has gone round; undefined where a stage was lost. */
  #receive(): StageFrame | undefined {
    for (let sent = this.#sent.shift(); sent; sent = this.#sent.shift()) {
      const frame = this.#next();
      if (endsEpoch(frame)) {
        this.#begin();
        return undefined;
      }
      if (frame.step !== sent.step) {
        throw new Error(`the stages answered step ${frame.step} in place of ${sent.step}`);
      }
      if (sent.step === 0) this.#own.clear();
      makeChanges(this.#own, sent.changes);
      if (sent.hasRows) return frame;
    }
    throw new Error("no batch is under way");
  }

  /** The next frame of this epoch: those of an earlier one were still under way. */
  #next(): StageFrame {
    for (;;) {
      const frame = this.#pipe.read();
      if (!frame) throw new Error("the stages of the model are gone");
      if (frame.epoch === this.#epoch) return frame;
    }
  }

  /** Another epoch, in which all stages begin with no tokens. */
  #begin(): void {
    this.#epoch = newEpoch();
    this.#step = 0;
    this.#changes = [];
    this.#sent = [];
    this.#given.clear();
  }
}

function newEpoch(): number {
  return randomInt(1, 2 ** 32 - 1);
}
