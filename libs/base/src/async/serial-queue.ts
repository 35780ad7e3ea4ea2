/** Runs one piece of work after the other, in the order in which they came. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();

  /** The result of the work, which begins when all before it have ended, however they did. */
  run<T>(work: () => T | Promise<T>): Promise<T> {
    const result = this.#last.then(work);
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Resolves when all that came before the call has ended. */
  async idle(): Promise<void> {
    await this.#last;
  }
}
