import type { StageModel } from "../stage-model.ts";
import type { GivenAdapters } from "./adapter-frames.ts";
import {
  makeChanges,
  ROW_NUMBERS,
  STAGE_FULL,
  STAGE_GIVES,
  STAGE_OK,
  STAGE_UNFIT,
  type StageFrame,
} from "./stage-frame.ts";

const NO_HIDDEN = new Float32Array(0);

interface RunningStage
  extends Pick<StageModel, "decodeRows" | "hidden" | "remove" | "copy" | "clear"> {
  readonly adapters: Pick<GivenAdapters, "take" | "apply">;
}

/** A stage that is not the last: what it does with a frame, and the frame that it sends on. */
export class StageRunner {
  readonly #stage: RunningStage;
  #epoch = 0;
  #next = 0;

  constructor(stage: RunningStage) {
    this.#stage = stage;
  }

  /** Undefined for a frame of an epoch that has ended. Throws where one is missing before it. */
  run(frame: StageFrame): StageFrame | undefined {
    const { epoch, step } = frame;
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
}
