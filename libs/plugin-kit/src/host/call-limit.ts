/**
 * The time limits of a plugin's calls, under one timer that is armed for the earliest of them. A
 * timer for each call would cost more than all else of a short one.
 */
export class CallLimits {
  readonly #running = new Set<CallLimit>();
  #timer: NodeJS.Timeout | undefined;
  #timerAtMs = Infinity;

  add(limit: CallLimit): void {
    this.#running.add(limit);
    if (limit.endsAtMs < this.#timerAtMs) this.#arm(limit.endsAtMs);
  }

  delete(limit: CallLimit): void {
    this.#running.delete(limit);
  }

  #arm(atMs: number): void {
    clearTimeout(this.#timer);
    this.#timerAtMs = atMs;
    if (atMs === Infinity) return;
    this.#timer = setTimeout(() => this.#endLate(), Math.ceil(atMs - performance.now()));
    this.#timer.unref();
  }

  #endLate(): void {
    const nowMs = performance.now();
    for (const limit of this.#running) if (limit.endsAtMs <= nowMs) limit.endLate();
    let nextMs = Infinity;
    for (const { endsAtMs } of this.#running) nextMs = Math.min(nextMs, endsAtMs);
    this.#arm(nextMs);
  }
}

/**
 * When a call must end: at its time limit, or when its caller is gone. It has a signal only where
 * one is asked for: events of signals would cost more than all else of a short call.
 */
export class CallLimit {
  readonly #limits: CallLimits;
  readonly #ms: number;
  #listener: (() => void) | undefined;
  #abort: AbortController | undefined;
  endsAtMs = Infinity;
  isLate = false;
  isEnded = false;

  constructor(limits: CallLimits, ms: number) {
    this.#limits = limits;
    this.#ms = ms;
  }

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.isEnded) this.#abort.abort();
    return this.#abort.signal;
  }

  /** Starts the time again. */
  start(): void {
    if (this.isEnded) return;
    this.endsAtMs = performance.now() + this.#ms;
    this.#limits.add(this);
  }

  /** Stops the time, until `start`. */
  pause(): void {
    this.#limits.delete(this);
  }

  /** Calls the listener, in place of one before, when the call must end. */
  onEnded(listener: () => void): void {
    this.#listener = listener;
    if (this.isEnded) listener();
  }

  /** The caller is gone. */
  cancel(): void {
    if (this.isEnded) return;
    this.isEnded = true;
    this.pause();
    this.#abort?.abort();
    this.#listener?.();
  }

  endLate(): void {
    this.isLate = true;
    this.cancel();
  }

  /** The call has ended: only its signal may still be of use. */
  close(): void {
    this.pause();
    this.#listener = undefined;
  }
}
