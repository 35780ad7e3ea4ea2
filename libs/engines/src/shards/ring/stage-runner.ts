import type { CacheMover } from "../cache-mover.ts";
import type { StageModel } from "../stage-model.ts";
import type { GivenAdapters } from "./adapter-frames.ts";
import { bytesFrame, ComingBytes } from "./frame-bytes.ts";
import {
  makeChanges,
  ROW_NUMBERS,
  STAGE_FULL,
  STAGE_GIVES,
  STAGE_OK,
  STAGE_SAVES,
  STAGE_TAKES,
  STAGE_UNFIT,
  type StageFrame,
} from "./stage-frame.ts";

const NO_HIDDEN = new Float32Array(0);
const NO_ROWS = new Int32Array(0);
const NO_BYTES = new Uint8Array(0);

type StageWork = "decodeRows" | "hidden" | "remove" | "copy" | "clear";

interface RunningStage extends Pick<StageModel, StageWork> {
  readonly adapters: Pick<GivenAdapters, "take" | "apply" | "isEmpty">;
  readonly mover: Pick<CacheMover, "begin" | "save" | "take">;
}

/** A stage that is not the last: what it does with a frame, and the frame that it sends on. */
export class StageRunner {
  readonly #stage: RunningStage;
  #epoch = 0;
  #next = 0;
  /** Sequences that another stage gets, and the one that goes there. */
  #count: number | undefined;
  #saved: Uint8Array | undefined;
  readonly #coming = new ComingBytes();
  #isTaking = false;

  constructor(stage: RunningStage) {
    this.#stage = stage;
  }

  /** Undefined for a frame of an epoch that has ended. Throws where one is missing before it. */
  run(frame: StageFrame): StageFrame | undefined {
    const { epoch, step } = frame;
    if (frame.status === STAGE_SAVES) return this.#save(frame);
    if (frame.status === STAGE_TAKES) return this.#take(frame);
    if (epoch !== this.#epoch) {
      if (step !== 0) return undefined;
      this.#stage.clear();
      this.#epoch = epoch;
      this.#next = 0;
    }
    if (step !== this.#next) throw new Error(`step ${step} came in place of ${this.#next}`);
    this.#next++;
    makeChanges(this.#stage, frame.changes);
    if (frame.status === STAGE_GIVES) {
      this.#stage.adapters.take(frame);
      return frame;
    }
    if (frame.rows.length === 0 || frame.status !== STAGE_OK)
      return { ...frame, hidden: NO_HIDDEN };
    if (!this.#stage.adapters.apply(frame.adapter, frame.scale))
      return { ...frame, status: STAGE_UNFIT, hidden: NO_HIDDEN };
    const beganMs = performance.now();
    const isDone = this.#stage.decodeRows(frame.rows, frame.hidden);
    const hidden = isDone ? this.#stage.hidden(frame.rows.length / ROW_NUMBERS) : NO_HIDDEN;
    const micros = frame.micros + Math.round((performance.now() - beganMs) * 1_000);
    return { ...frame, status: isDone ? STAGE_OK : STAGE_FULL, micros, hidden };
  }

  /** Adapters are not saved: without their bytes another stage could not continue. */
  #save(frame: StageFrame): StageFrame {
    const { mover, adapters } = this.#stage;
    const [index = 0, from = 0] = frame.rows;
    if (index === 0 && from === 0) this.#count = adapters.isEmpty ? mover.begin() : undefined;
    const count = this.#count;
    if (from === 0) this.#saved = count === 0 ? NO_BYTES : mover.save(index);
    const saved = this.#saved;
    if (!saved || count === undefined) return { ...frame, status: STAGE_UNFIT };
    const { rows, hidden } = bytesFrame(saved, from, Math.max(0, count - index - 1));
    return { ...frame, epoch: this.#epoch, step: this.#next, status: STAGE_TAKES, rows, hidden };
  }

  /** Continues where the stage was that has saved the sequences. */
  #take(frame: StageFrame): StageFrame {
    const { mover } = this.#stage;
    const answer = { ...frame, rows: NO_ROWS, hidden: NO_HIDDEN };
    if (!this.#isTaking) this.#stage.clear();
    this.#isTaking = true;
    const sequence = this.#coming.take(frame);
    if (!sequence) return answer;
    if (sequence.length > 0 && !mover.take(sequence)) return { ...answer, status: STAGE_UNFIT };
    if (frame.rows[2] !== 0) return answer;
    this.#isTaking = false;
    this.#epoch = frame.epoch;
    this.#next = frame.step;
    return answer;
  }
}
