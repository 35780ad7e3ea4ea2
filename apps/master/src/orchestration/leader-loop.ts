import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { ControlCommand } from "@heddle/control/command";
import type { NodeLog } from "@heddle/rpc/node/log";
import { isActiveLeader } from "../control-plane/active-leader.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";

/** How often a loop looks whether its master leads now, and after a step that failed. */
const LOOK_MS = 500;
/** The longest wait that a timer of Node can hold, nearly. */
const MAX_WAIT_MS = 3_600_000;

export interface LeaderLoopOptions {
  readonly control: ControlPlane;
  readonly clock: Clock;
  readonly log: NodeLog;
  /** What the loop does, for the log. */
  readonly name: string;
  /** Between the end of one step and the next: what comes meanwhile is dealt with together. */
  readonly pauseMs: number;
  /** Whether a step may have something to do after this command; undefined is a new state. */
  readonly concerns: (command: ControlCommand | undefined) => boolean;
  /** One step; resolves with the wall-clock time at which to look again at the latest. */
  readonly step: () => Promise<number | undefined>;
}

/**
 * Does one thing for the group as long as this master leads it: a step after each change that
 * matters and at the time that the last step named, never two at once. A step that fails, as when
 * the lead is lost under it, is said and tried again; nothing is kept between steps that matters.
 */
export class LeaderLoop {
  readonly #options: LeaderLoopOptions;
  readonly #unsubscribe: () => void;
  readonly #look: NodeJS.Timeout;
  #timer: NodeJS.Timeout | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  #running = false;
  #wanted = true;
  #led = false;
  #closed = false;
  #pauseMs: number;

  constructor(options: LeaderLoopOptions) {
    this.#options = options;
    this.#pauseMs = options.pauseMs;
    this.#unsubscribe = options.control.onApplied((command) => {
      if (options.concerns(command)) this.poke();
    });
    this.#look = setInterval(() => this.#lookAround(), LOOK_MS);
    this.#look.unref();
    this.poke();
  }

  /** Asks for a step soon. */
  poke(): void {
    this.#wanted = true;
    if (!this.#running) this.#wakeIn(this.#pauseMs);
  }

  close(): void {
    this.#closed = true;
    this.#unsubscribe();
    clearInterval(this.#look);
    clearTimeout(this.#timer);
  }

  #lookAround(): void {
    const led = isActiveLeader(this.#options.control);
    // What changed while another master led was no concern of this one.
    if (led && !this.#led) this.poke();
    this.#led = led;
  }

  #wakeIn(ms: number): void {
    const atMs = this.#options.clock.monotonicMs() + ms;
    if (this.#closed || atMs >= this.#timerAtMs) return;
    clearTimeout(this.#timer);
    this.#timerAtMs = atMs;
    this.#timer = setTimeout(() => void this.#run(), ms);
    this.#timer.unref();
  }

  async #run(): Promise<void> {
    this.#timerAtMs = Number.POSITIVE_INFINITY;
    if (this.#closed || this.#running || !isActiveLeader(this.#options.control)) return;
    const { clock, log, name, step, pauseMs } = this.#options;
    this.#running = true;
    this.#wanted = false;
    const startedMs = clock.monotonicMs();
    let nextMs: number | undefined;
    try {
      nextMs = await step();
    } catch (error) {
      log.warn({ err: toAppError(error).message }, `${name}: tried again`);
      nextMs = clock.wallMs() + LOOK_MS;
    }
    this.#running = false;
    // At most half of the time goes to one loop, however much there is to do.
    this.#pauseMs = Math.max(pauseMs, clock.monotonicMs() - startedMs);
    if (this.#wanted) this.#wakeIn(this.#pauseMs);
    if (nextMs === undefined) return;
    const waitMs = Math.max(this.#pauseMs, nextMs - clock.wallMs());
    this.#wakeIn(Math.min(MAX_WAIT_MS, waitMs));
  }
}
