/** What a push lets out: text that surely lies before any stop string, and whether one was met. */
interface Scanned {
  readonly text: string;
  readonly stopped: boolean;
}

/**
 * Cuts a stream of text before the first stop string. The first is the one that completes first
 * (and of those, the longest), so the answer does not depend on how the text was chunked.
 * Text that may yet turn out to begin a stop string is held back: never more than the longest stop
 * string's length less one.
 */
export class StopScanner {
  readonly #stops: readonly string[];
  #held = "";
  #stopped = false;

  /** An empty stop string matches nothing; lone surrogates match as U+FFFD, as text carries them. */
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== "").map((stop) => stop.toWellFormed());
  }

  /** `text` is whole characters. After a stop everything is swallowed. */
  push(text: string): Scanned {
    if (this.#stopped) return { text: "", stopped: true };
    if (this.#stops.length === 0) return { text, stopped: false };
    const pending = this.#held + text;
    const cut = this.#firstMatch(pending);
    if (cut !== undefined) {
      this.#stopped = true;
      this.#held = "";
      return { text: pending.slice(0, cut), stopped: true };
    }
    const keep = pending.length - this.#heldLength(pending);
    this.#held = pending.slice(keep);
    return { text: pending.slice(0, keep), stopped: false };
  }

  /** The end of the text came: what was held back is no stop string after all. */
  flush(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }

  /** The start of the stop string that completes first in `text`. */
  #firstMatch(text: string): number | undefined {
    let start: number | undefined;
    let end = Number.POSITIVE_INFINITY;
    for (const stop of this.#stops) {
      const found = text.indexOf(stop);
      if (found < 0) continue;
      const foundEnd = found + stop.length;
      if (foundEnd > end || (foundEnd === end && start !== undefined && found > start)) continue;
      start = found;
      end = foundEnd;
    }
    return start;
  }

  /** The length of the longest suffix of `text` that is a proper prefix of a stop string. */
  #heldLength(text: string): number {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let n = Math.min(stop.length - 1, text.length); n > longest; n--) {
        if (text.endsWith(stop.slice(0, n))) {
          longest = n;
          break;
        }
      }
    }
    return longest;
  }
}
