/** Ends what a `read` began; a second call does nothing. */
export type GateRelease = () => void;

/**
 * Many read a slab at once, or one update changes it. An update that waits keeps new readers out, so
 * that it is never starved; who reads is cut by its own time limit, so that it never waits for ever.
 */
export class UpdateGate {
  #readers = 0;
  #updating = false;
  #waiting = new Set<() => void>();

  /** Resolves when no update is due and `may` says yes; it is asked again after each `changed`. */
  async read(may: () => boolean, signal: AbortSignal): Promise<GateRelease> {
    while (this.#updating || !may()) await this.#change(signal);
    signal.throwIfAborted();
    this.#readers++;
    let done = false;
    return () => {
      if (done) return;
      done = true;
      this.#readers--;
      this.changed();
    };
  }

  /** Keeps readers out from now on; to be called with the decision that an update is due. */
  begin(): void {
    this.#updating = true;
  }

  /** Does the update when the last reader has gone, and lets readers in again. */
  async update(work: () => void, signal: AbortSignal): Promise<void> {
    this.#updating = true;
    while (this.#readers > 0) await this.#change(signal);
    work();
    this.#updating = false;
    this.changed();
  }

  /** Something that a `may` depends on is another now. */
  changed(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  #change(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const wake = () => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      };
      const onAbort = () => {
        this.#waiting.delete(wake);
        reject(signal.reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#waiting.add(wake);
    });
  }
}
