import type { StageLoad } from "@heddle/contracts/models/model-division";

/** A longer time without work is a pause of requests, and no bubble of the pipeline. */
const MAX_BUBBLE_MS = 1_000;

/** What a stage does with its time, by the frames that come to it and leave it in their order. */
export class StageTimes {
  /** When the stage received the frames that it has. */
  #present: number[] = [];
  #leftMs = Number.NEGATIVE_INFINITY;
  #steps = 0;
  #busyMs = 0;
  #idleMs = 0;
  #hops = 0;
  #hopMs = 0;

  /** Whether it has a frame. */
  get isBusy(): boolean {
    return this.#present.length > 0;
  }

  get load(): StageLoad {
    return {
      steps: this.#steps,
      busyMs: Math.round(this.#busyMs),
      idleMs: Math.round(this.#idleMs),
      hops: this.#hops,
      hopMicros: Math.round(this.#hopMs * 1_000),
    };
  }

  arrived(nowMs: number): void {
    const gapMs = nowMs - this.#leftMs;
    if (this.#present.length === 0 && gapMs < MAX_BUBBLE_MS) this.#idleMs += gapMs;
    this.#present.push(nowMs);
  }

  /** Nothing is counted before the first frame. */
  left(nowMs: number): void {
    const cameMs = this.#present.shift();
    if (cameMs === undefined) return;
    this.#busyMs += nowMs - Math.max(cameMs, this.#leftMs);
    this.#steps++;
    this.#leftMs = nowMs;
  }

  /** A frame took this long for this many ways between workers. */
  hopped(hops: number, ms: number): void {
    this.#hops += hops;
    this.#hopMs += Math.max(0, ms);
  }

  /** Frames that have not left are gone. */
  restart(): void {
    this.#present = [];
  }
}
