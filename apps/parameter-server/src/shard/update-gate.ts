/** Ends a `read`; a second call does nothing. */
export type GateRelease = () => void;

/**
 * A lock for many readers or one update of a slab. A waiting update blocks new readers, so it never
 * starves; readers have time limits, so it never waits forever.
 */
export class UpdateGate {
  #readers = 0;
  #updating = false;
  #waiting = new Set<() => void>();

  /**
   * Resolves when no update is due and `may` returns true, which is checked again after each
   * `changed`.
   */
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

  /** Blocks new readers from now on; call it with the decision that an update is due. */
  begin(): void {
    this.#updating = true;
  }

  /** Runs the update after the last reader, and admits readers again. */
  async update(work: () => void, signal: AbortSignal): Promise<void> {
    this.#updating = true;
    while (this.#readers > 0) await this.#change(signal);
    work();
    this.#updating = false;
    this.changed();
  }

  /** Reports a change of a condition that a `may` depends on. */
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
