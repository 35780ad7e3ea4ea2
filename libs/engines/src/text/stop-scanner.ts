/** The result of a push: text that is certainly before any stop string, and whether one was found. */
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
  #stop: string | undefined;

  /** An empty stop string matches nothing; lone surrogates match as U+FFFD, as text carries them. */
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== "").map((stop) => stop.toWellFormed());
  }

  /** The stop string that was met. */
  get stop(): string | undefined {
    return this.#stop;
  }

  /** `text` is whole characters. After a stop everything is swallowed. */
  push(text: string): Scanned {
    if (this.#stop !== undefined) return { text: "", stopped: true };
    if (this.#stops.length === 0) return { text, stopped: false };
    const pending = this.#held + text;
    const match = this.#firstMatch(pending);
    if (match !== undefined) {
      this.#stop = match.stop;
      this.#held = "";
      return { text: pending.slice(0, match.start), stopped: true };
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

  /** The stop string that completes first in `text`, and its start. */
  #firstMatch(text: string): { readonly stop: string; readonly start: number } | undefined {
    let match: { readonly stop: string; readonly start: number } | undefined;
    let end = Number.POSITIVE_INFINITY;
    for (const stop of this.#stops) {
      const found = text.indexOf(stop);
      if (found < 0) continue;
      const foundEnd = found + stop.length;
      if (foundEnd > end || (foundEnd === end && match !== undefined && found > match.start)) {
        continue;
      }
      match = { stop, start: found };
      end = foundEnd;
    }
    return match;
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
