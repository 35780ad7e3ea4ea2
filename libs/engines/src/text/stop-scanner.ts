/** The result of a push: text that is certainly before any stop string, and whether one was found. */
interface Scanned {
  readonly text: string;
  readonly stopped: boolean;
}

/** Where a stop string is. */
interface Match {
  readonly stop: string;
  readonly start: number;
  readonly end: number;
}

/**
 * Cuts a stream of text before the first stop string. The first is the one that completes first
 * (and of those, the longest), so the answer does not depend on how the text was chunked.
 * Text that may yet turn out to begin a stop string is held back: never more than the longest stop
 * string's length less one. Behind a mark, which begins the calls of tools, none is searched.
 */
export class StopScanner {
  readonly #stops: readonly string[];
  readonly #marks: readonly string[];
  /** The end of the text so far, in which a mark may begin. */
  #tail = "";
  #isPastMark = false;
  #held = "";
  #stop: string | undefined;

  /** An empty stop string matches nothing; lone surrogates match as U+FFFD, as text carries them. */
  constructor(stops: readonly string[], marks: readonly string[] = []) {
    this.#stops = stops.filter((stop) => stop !== "").map((stop) => stop.toWellFormed());
    this.#marks = this.#stops.length > 0 ? marks : [];
  }

  /** The stop string that was met. */
  get stop(): string | undefined {
    return this.#stop;
  }

  /** `text` is whole characters. After a stop everything is swallowed. */
  push(text: string): Scanned {
    if (this.#stop !== undefined) return { text: "", stopped: true };
    if (this.#stops.length === 0 || this.#isPastMark) return { text, stopped: false };
    const pending = this.#held + text;
    const match = this.#firstMatch(pending);
    const unread = this.#passMark(text);
    // The mark counts where it is complete before the stop string, or with it.
    if (unread !== undefined && (!match || match.end >= pending.length - unread)) {
      this.#held = "";
      return { text: pending, stopped: false };
    }
    if (match !== undefined) {
      this.#stop = match.stop;
      this.#held = "";
      return { text: pending.slice(0, match.start), stopped: true };
    }
    const keep = pending.length - this.#heldLength(pending);
    this.#held = pending.slice(keep);
    return { text: pending.slice(0, keep), stopped: false };
  }

  /** The text has ended: what was held back is no stop string after all. */
  flush(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }

  /** Takes text in which no stop string counts. */
  skip(text: string): void {
    if (!this.#isPastMark) this.#passMark(text);
  }

  /** Notes the text; gives the characters of it behind the first mark, once one is complete. */
  #passMark(text: string): number | undefined {
    if (this.#marks.length === 0) return undefined;
    const seen = this.#tail + text;
    const ends = this.#marks.flatMap((mark) => {
      const at = seen.indexOf(mark);
      return at < 0 ? [] : [at + mark.length];
    });
    this.#isPastMark = ends.length > 0;
    this.#tail = seen.slice(-Math.max(...this.#marks.map(({ length }) => length)));
    return this.#isPastMark ? seen.length - Math.min(...ends) : undefined;
  }

  /** The stop string that completes first in `text`, and its place. */
  #firstMatch(text: string): Match | undefined {
    let match: Match | undefined;
    let end = Number.POSITIVE_INFINITY;
    for (const stop of this.#stops) {
      const found = text.indexOf(stop);
      if (found < 0) continue;
      const foundEnd = found + stop.length;
      if (foundEnd > end || (foundEnd === end && match !== undefined && found > match.start)) {
        continue;
      }
      match = { stop, start: found, end: foundEnd };
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
