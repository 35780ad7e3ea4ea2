import { restAfter } from "@heddle/base/async/rest";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { ControlCommand } from "@heddle/control/command";
import type { Log } from "@heddle/observability/logger";
import { isActiveLeader } from "../control-plane/active-leader.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";

/** Polling interval for leadership, and the wait after a failed step. */
const POLL_MS = 500;
/** Below the longest delay of a Node timer. */
const MAX_WAIT_MS = 3_600_000;

/** What only the active leader does, step by step. */
export interface LeaderTask {
  /** For the log. */
  readonly name: string;
  /** Pause between two steps, so that changes are handled together. */
  readonly pauseMs: number;
  /** Whether a step may have work after this command; undefined: the state was replaced. */
  readonly concerns: (command: ControlCommand | undefined) => boolean;
  /** One step; resolves with the time of the next one at the latest, by the clock of the loops. */
  readonly step: () => Promise<number | undefined>;
}

/**
 * Runs a task of the active leader in steps, one at a time: after each relevant change and at the
 * time that the last returned. A failed step, as on the loss of leadership, is logged and retried;
 * steps keep no essential state.
 */
export class LeaderLoop {
  readonly #task: LeaderTask;
  readonly #control: ControlPlane;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #unsubscribe: () => void;
  readonly #poll: NodeJS.Timeout;
  #timer: NodeJS.Timeout | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  #running = false;
  #isRequested = true;
  #led = false;
  #closed = false;
  #pauseMs: number;

  constructor(task: LeaderTask, control: ControlPlane, clock: Clock, log: Log) {
    this.#task = task;
    this.#control = control;
    this.#clock = clock;
    this.#log = log;
    this.#pauseMs = task.pauseMs;
    this.#unsubscribe = control.onApplied((command) => {
      if (task.concerns(command)) this.poke();
    });
    this.#poll = setInterval(() => this.#checkLeadership(), POLL_MS);
    this.#poll.unref();
    this.poke();
  }

  /** Requests a step soon. */
  poke(): void {
    this.#isRequested = true;
    if (!this.#running) this.#wakeIn(this.#pauseMs);
  }

  close(): void {
    this.#closed = true;
    this.#unsubscribe();
    clearInterval(this.#poll);
    clearTimeout(this.#timer);
  }

  #checkLeadership(): void {
    const led = isActiveLeader(this.#control);
    // Changes under another leader were not seen here.
    if (led && !this.#led) this.poke();
    this.#led = led;
  }

  #wakeIn(ms: number): void {
    const atMs = this.#clock.monotonicMs() + ms;
    if (this.#closed || atMs >= this.#timerAtMs) return;
    clearTimeout(this.#timer);
    this.#timerAtMs = atMs;
    this.#timer = setTimeout(() => void this.#run(), ms);
    this.#timer.unref();
  }

  async #run(): Promise<void> {
    this.#timerAtMs = Number.POSITIVE_INFINITY;
    if (this.#closed || this.#running || !isActiveLeader(this.#control)) return;
    const clock = this.#clock;
    const { name, pauseMs } = this.#task;
    this.#running = true;
    this.#isRequested = false;
    const startedMs = clock.monotonicMs();
    let nextMs: number | undefined;
    try {
      nextMs = await this.#task.step();
    } catch (error) {
      this.#log.warn({ err: toAppError(error).message }, `${name}: tried again`);
      nextMs = clock.wallMs() + POLL_MS;
    }
    this.#running = false;
    // A loop may use at most half of the time, however much there is to do.
    this.#pauseMs = Math.max(pauseMs, restAfter(clock.monotonicMs() - startedMs));
    if (this.#isRequested) this.#wakeIn(this.#pauseMs);
    if (nextMs === undefined) return;
    const waitMs = Math.max(this.#pauseMs, nextMs - clock.wallMs());
    this.#wakeIn(Math.min(MAX_WAIT_MS, waitMs));
  }
}
