/**
 * When a call must end: at its time limit, or when its caller is gone. It has a signal only where
 * one is asked for: events of signals would cost more than all else of a short call.
 */
export class CallLimit {
  readonly #ms: number;
  readonly #listeners = new Set<() => void>();
  #abort: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;
  isLate = false;
  isEnded = false;

  constructor(ms: number) {
    this.#ms = ms;
    this.restart();
  }

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.isEnded) this.#abort.abort();
    return this.#abort.signal;
  }

  /** Calls the listener when the call must end; returns what removes it. */
  onEnded(listener: () => void): () => void {
    if (this.isEnded) listener();
    else this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The caller is gone. */
  readonly cancel = (): void => {
    if (this.isEnded) return;
    this.isEnded = true;
    clearTimeout(this.#timer);
    this.#abort?.abort();
    for (const listener of this.#listeners) listener();
  };

  restart(): void {
    clearTimeout(this.#timer);
    if (this.isEnded) return;
    this.#timer = setTimeout(() => {
      this.isLate = true;
      this.cancel();
    }, this.#ms);
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}
