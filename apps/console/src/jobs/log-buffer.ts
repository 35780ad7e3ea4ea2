import type { LogEntry } from "@heddle/contracts/api/job-operations";
import { withoutColours } from "../ui/format.ts";

/** A line as it is shown. */
export interface ShownLine {
  /** Its place since the page was opened, which identifies it. */
  readonly number: number;
  readonly rank: number;
  readonly isError: boolean;
  /** The bytes of dropped output; then there is no text. */
  readonly gapBytes?: number;
  readonly text: string;
}

/** Lines that are kept; older ones are dropped. */
const MAX_LINES = 200_000;
/** Longer lines are cut where they are shown. */
const MAX_CHARACTERS = 4_000;

/** The lines of a log, oldest first, up to a bound. */
export class LogBuffer {
  #lines: ShownLine[] = [];
  #next = 0;
  /** The position after the last line that has one. */
  cursor: string | undefined;
  readonly #maxLines: number;

  constructor(maxLines = MAX_LINES) {
    this.#maxLines = maxLines;
  }

  add(entries: readonly LogEntry[]): void {
    if (entries.length === 0) return;
    const added = entries.map((entry) => this.#shown(entry));
    this.cursor = entries.findLast(({ cursor }) => cursor !== undefined)?.cursor ?? this.cursor;
    // A new list, so that readers see that it has changed.
    this.#lines = [...this.#lines, ...added].slice(-this.#maxLines);
  }

  get lines(): readonly ShownLine[] {
    return this.#lines;
  }

  /** How many of the first lines are no longer kept. */
  get dropped(): number {
    return this.#next - this.#lines.length;
  }

  #shown(entry: LogEntry): ShownLine {
    const { rank, stream } = entry;
    const head = { number: this.#next++, rank, isError: stream === "stderr" };
    if (entry.type === "gap") return { ...head, gapBytes: entry.bytes, text: "" };
    return { ...head, text: withoutColours(entry.text).slice(0, MAX_CHARACTERS) };
  }
}

/** The lines that contain a text, in any case. */
export function linesWith(lines: readonly ShownLine[], wanted: string): readonly ShownLine[] {
  if (wanted === "") return lines;
  const lower = wanted.toLowerCase();
  return lines.filter(({ text }) => text.toLowerCase().includes(lower));
}
