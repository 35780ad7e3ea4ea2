import type { StageModel } from "../stage-model.ts";
import { makeChanges, ROW_NUMBERS, STAGE_FULL, STAGE_OK, type StageFrame } from "./stage-frame.ts";

const NO_HIDDEN = new Float32Array(0);

/** A stage that is not the last: what it does with a frame, and the frame that it sends on. */
export class StageRunner {
  readonly #stage: Pick<StageModel, "decodeRows" | "hidden" | "remove" | "copy" | "clear">;
  #epoch = 0;
  #next = 0;

  constructor(stage: Pick<StageModel, "decodeRows" | "hidden" | "remove" | "copy" | "clear">) {
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
    if (frame.rows.length === 0 || frame.status !== STAGE_OK)
      return { ...frame, hidden: NO_HIDDEN };
    const beganMs = performance.now();
    const isDone = this.#stage.decodeRows(frame.rows, frame.hidden);
    const hidden = isDone ? this.#stage.hidden(frame.rows.length / ROW_NUMBERS) : NO_HIDDEN;
    const micros = frame.micros + Math.round((performance.now() - beganMs) * 1_000);
    return { ...frame, status: isDone ? STAGE_OK : STAGE_FULL, micros, hidden };
  }
}
