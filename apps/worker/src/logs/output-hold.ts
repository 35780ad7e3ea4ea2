import type { TaskProgress } from "@heddle/contracts/generated/heddle/v1/TaskProgress";
import type { TaskHandle } from "../tasks/executors/executor.ts";
import type { TaskStreams } from "./task-streams.ts";

/** A task that was stopped goes on when so little of its bound waits. */
const releaseShare = 0.5;

/**
 * Stops a task while more of its output waits for the masters than may: a program that writes faster
 * than they take it is held up, as by a full pipe, and no line is lost.
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

  /** Stops the task or has it go on, as its output asks; true where that is another than before. */
  async look(handle: TaskHandle): Promise<boolean> {
    const share = this.#streams.waitingShare;
    if (this.#isHeld && share <= releaseShare) return this.release(handle);
    if (!this.#isHeld && share <= 1) return false;
    const isNew = !this.#isHeld;
    this.#isHeld = true;
    // Again at each look: a process that was forked while the others were stopped runs on.
    await handle.hold(true);
    return isNew;
  }

  /** Whoever must leave goes on, however much waits; true where it was stopped. */
  async release(handle: TaskHandle): Promise<boolean> {
    if (!this.#isHeld) return false;
    this.#isHeld = false;
    await handle.hold(false);
    return true;
  }

  /** The task's progress, with what it waits for while it is stopped. */
  told(progress: TaskProgress | undefined): TaskProgress | undefined {
    if (!this.#isHeld) return progress;
    const { line = "{}" } = progress ?? {};
    const mebibytes = (this.#streams.maxBytes / 2 ** 20).toFixed(0);
    const message = `stopped for now: more than ${mebibytes} MiB of its output wait for the masters; it goes on when they have taken half of that`;
    const said = { ...(JSON.parse(line) as object), message };
    return { ...progress, line: JSON.stringify(said), atUnixMs: Date.now() };
  }
}
