import { setTimeout as delay } from "node:timers/promises";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import type { TaskEnd, TaskHandle, TaskUsage } from "../executors/executor.ts";
import type { RunnerEnd } from "./program/messages.ts";
import type { RunnerControl } from "./runner-control.ts";

const POLL_MS = 200;
/** For the answer to an order of a runner that is busy. */
const ANSWER_MS = 5_000;
/** A runner that has ended, or is gone, and has not said how: its report may be delayed. */
const LAST_WORDS_MS = 10_000;
/** How long the end waits until the outer system has seen it, and the devices are free. */
const OVER_MS = 15_000;
/** A runner that does not obey is removed from outside. */
const OBEY_MS = 5_000;

/** What the outer system says of a runner that it has. */
export interface RunnerPlace {
  /** None of its processes runs any more. */
  readonly isEnded: boolean;
  /** The known end of a runner that has not reported it. */
  readonly unreported?: RunnerEnd | Pick<TaskEnd, "outOfMemory" | "lostBy"> | undefined;
}

/** A task's runner as its executor sees and removes it. */
export interface RunnerAccess {
  readonly control: RunnerControl;
  /** 0: none. */
  readonly memoryLimitBytes: number;
  /** The message for a runner that the outer system has removed. */
  readonly lostMessage: string;
  /** Undefined where the outer system has none. */
  place(): RunnerPlace | undefined;
  remove(graceSeconds: number): Promise<void>;
}

/** A task in a Pod or a batch system: its runner obeys orders, and says how the program ended. */
export class RunnerTask implements TaskHandle {
  readonly record: unknown;
  readonly exited: Promise<TaskEnd>;
  readonly #access: RunnerAccess;
  #isKilled = false;

  constructor(record: unknown, access: RunnerAccess) {
    this.record = record;
    this.#access = access;
    this.exited = this.#exited();
  }

  async signal(signal: NodeJS.Signals, onlyCaught = false): Promise<number> {
    const { control } = this.#access;
    const id = await control.order({ kind: "signal", signal, onlyCaught });
    for (const untilMs = performance.now() + ANSWER_MS; performance.now() < untilMs; ) {
      for (const event of await control.events()) {
        if (event.kind === "answer" && event.id === id) return event.count;
        if (event.kind === "end") return 0;
      }
      await delay(POLL_MS / 2);
    }
    return 0;
  }

  async hold(isHeld: boolean): Promise<void> {
    await this.signal(isHeld ? "SIGSTOP" : "SIGCONT");
  }

  async kill(): Promise<void> {
    this.#isKilled = true;
    await this.#access.control.order({ kind: "kill" });
    while (!(await resolvesWithin(this.exited, OBEY_MS))) {
      await this.#access.remove(1).catch(() => undefined); // Tried again.
    }
  }

  /** The next process of this worker takes it over, or the runner ends it with the lease. */
  killNow(): void {}

  /** The outer system bounds its memory. */
  async usage(): Promise<TaskUsage> {
    return { memoryBytes: 0, processes: 0 };
  }

  async #exited(): Promise<TaskEnd> {
    let overAtMs: number | undefined;
    for (;;) {
      const events = await this.#access.control.events();
      const end = events.find((event) => event.kind === "end");
      if (end) {
        await this.#gone();
        return this.#endOf(end);
      }
      const place = this.#access.place();
      if (place && !place.isEnded) overAtMs = undefined;
      else overAtMs ??= performance.now();
      if (overAtMs !== undefined && performance.now() - overAtMs > LAST_WORDS_MS) {
        // A runner that the outer system has lost may still be there.
        await this.#access.control.order({ kind: "kill" });
        await this.#access.remove(1).catch(() => undefined);
        return this.#unreportedEnd(place);
      }
      await delay(POLL_MS);
    }
  }

  /** Waits until its devices are free, and removes it. */
  async #gone(): Promise<void> {
    const untilMs = performance.now() + OVER_MS;
    for (;;) {
      const place = this.#access.place();
      if (!place || place.isEnded || performance.now() > untilMs) break;
      await delay(POLL_MS / 2);
    }
    // The next sweep finds it.
    await this.#access.remove(1).catch(() => undefined);
  }

  #endOf({ exitCode, signal, isLost, isKilled }: RunnerEnd): TaskEnd {
    // A SIGKILL that neither this worker nor the runner has sent is that of the memory bound.
    const isOwn = isLost === true || isKilled === true || this.#isKilled;
    const outOfMemory = signal === "SIGKILL" && !isOwn && this.#access.memoryLimitBytes > 0;
    return { exitCode, signal, outOfMemory, ...(isLost && { lostBy: this.#access.lostMessage }) };
  }

  #unreportedEnd(place: RunnerPlace | undefined): TaskEnd {
    const { unreported } = place ?? {};
    if (unreported && "kind" in unreported) return this.#endOf(unreported);
    return unreported ?? { lostBy: this.#access.lostMessage };
  }
}
