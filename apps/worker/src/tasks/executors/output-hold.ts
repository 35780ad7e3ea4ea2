import type { TaskProgress } from "@heddle/contracts/generated/heddle/v1/TaskProgress";
import type { TaskStreams } from "../../logs/task-streams.ts";
import type { TaskHandle } from "./executor.ts";

/** A stopped task continues when this share of its bound is left. */
const RELEASE_SHARE = 0.5;

/**
 * Stops a task while too much of its output waits for the masters. A program that is faster than
 * they are is blocked, as by a full pipe, and no line is lost.
 */
export class OutputHold {
  readonly #streams: TaskStreams;
  #isHeld = false;

  constructor(streams: TaskStreams) {
    this.#streams = streams;
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** Stops or continues the task by the state of its output; true where that has changed. */
  async update(handle: TaskHandle): Promise<boolean> {
    const share = this.#streams.waitingShare;
    if (this.#isHeld && share <= RELEASE_SHARE) return this.release(handle);
    if (!this.#isHeld && share <= 1) return false;
    const isNew = !this.#isHeld;
    this.#isHeld = true;
    // Repeated at each check: a process that was forked during the stop runs.
    await handle.hold(true);
    return isNew;
  }

  /** Continues a task that must leave, however much waits; true where it was stopped. */
  async release(handle: TaskHandle): Promise<boolean> {
    if (!this.#isHeld) return false;
    this.#isHeld = false;
    await handle.hold(false);
    return true;
  }

  /** The task's progress, with the reason of a stop. */
  withHoldReason(progress: TaskProgress | undefined): TaskProgress | undefined {
    if (!this.#isHeld) return progress;
    const { line = "{}" } = progress ?? {};
    const mebibytes = (this.#streams.maxBytes / 2 ** 20).toFixed(0);
    const message = `paused: more than ${mebibytes} MiB of its output wait for the masters; it resumes at half of that`;
    const said = { ...(JSON.parse(line) as object), message };
    return { ...progress, line: JSON.stringify(said), atUnixMs: Date.now() };
  }
}
