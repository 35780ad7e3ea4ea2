/** Runs one task after the other, in the order of the calls. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();

  /**
   * The result of the task, which starts when all earlier ones have ended, with or without an
   * error.
   */
  run<T>(work: () => T | Promise<T>): Promise<T> {
    const result = this.#last.then(work);
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Resolves when all earlier tasks have ended. */
  async idle(): Promise<void> {
    await this.#last;
  }
}
