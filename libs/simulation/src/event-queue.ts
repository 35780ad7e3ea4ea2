interface QueuedEvent {
  readonly atUs: number;
  /** Events of one time run in the order in which they were queued. */
  readonly order: number;
  readonly run: () => void;
}

/** Turns of the event loop that are scheduled together; one at a time takes ten times as long. */
const TURNS_AT_ONCE = 64;

/**
 * Simulated time: the single queue of all future events. Events run one by one, and all promises
 * that an event settles are processed before the next one. No timers or I/O interfere, so a run is
 * a function of the queued events.
 */
export class EventQueue {
  /** Microseconds since the start. */
  nowUs = 0;
  /** The number of events so far. */
  count = 0;
  readonly #heap: QueuedEvent[] = [];
  #queued = 0;

  /** Queues an event `delayUs` microseconds from now. */
  after(delayUs: number, run: () => void): void {
    this.#push({ atUs: this.nowUs + Math.max(0, Math.round(delayUs)), order: this.#queued++, run });
  }

  /** Runs events until the condition holds before one, or none is left; rejects if one throws. */
  run(isDone: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      let turns = 1;
      let ended = false;
      const turn = (): void => {
        turns--;
        if (ended) return;
        try {
          if (isDone() || !this.#runNext()) {
            ended = true;
            resolve();
          }
        } catch (error) {
          ended = true;
          reject(error);
        }
        if (ended || turns > 0) return;
        turns = TURNS_AT_ONCE;
        // The microtasks of a turn run before the next turn, even if both are scheduled together.
        for (let i = 0; i < TURNS_AT_ONCE; i++) setImmediate(turn);
      };
      setImmediate(turn);
    });
  }

  #runNext(): boolean {
    const event = this.#pop();
    if (!event) return false;
    this.nowUs = event.atUs;
    this.count++;
    event.run();
    return true;
  }

  #push(event: QueuedEvent): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as QueuedEvent;
      if (!isBefore(event, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): QueuedEvent | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      const right = heap[child + 1];
      if (right && isBefore(right, heap[child] as QueuedEvent)) child++;
      const below = heap[child] as QueuedEvent;
      if (!isBefore(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

function isBefore(a: QueuedEvent, b: QueuedEvent): boolean {
  return a.atUs < b.atUs || (a.atUs === b.atUs && a.order < b.order);
}
