/** Merges all requests of one turn of the event loop into one run of the work. */
export class OncePerTurn {
  readonly #defer: (run: () => void) => void;
  readonly #run: () => void;
  #isQueued = false;

  /** With `queueMicrotask` the work runs at the end of the turn, else in the next one. */
  constructor(work: () => void, defer: (run: () => void) => void = setImmediate) {
    this.#defer = defer;
    this.#run = () => {
      this.#isQueued = false;
      work();
    };
  }

  get isRequested(): boolean {
    return this.#isQueued;
  }

  request(): void {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.#defer(this.#run);
  }
}
