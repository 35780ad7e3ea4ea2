import { AppError } from "@heddle/base/errors";
import type { EventStore } from "../log/event-store.ts";
import { encodeBase64 } from "../notes/base64.ts";
import { parseCheckpoint } from "../notes/checkpoint.ts";
import { formatNote, type SignedNote } from "../notes/signed-note.ts";

/**
 * A range of a log as NDJSON, with all that proves it:
 *
 * - `head`, the first line: the range, a checkpoint, and the roots of the subtrees beside the range.
 * - `earlier`: an older checkpoint, with the proof that its tree is a prefix.
 * - `entry`, the last lines: the entries in order.
 */
export type ExportLine =
  | { readonly head: ExportHead }
  | { readonly earlier: EarlierCheckpoint }
  | { readonly entry: ExportedEntry };

export const EXPORT_FORMAT = "heddle-events/1";

export interface ExportHead {
  readonly format: string;
  /** The first entry, and the one after the last. */
  readonly first: number;
  readonly end: number;
  /** A signed note. */
  readonly checkpoint: string;
  /** Hashes in base64, from left to right. */
  readonly left: readonly string[];
  readonly right: readonly string[];
}

export interface EarlierCheckpoint {
  readonly checkpoint: string;
  readonly proof: readonly string[];
}

export interface ExportedEntry {
  readonly sequence: number;
  /** The stored bytes in base64. */
  readonly data: string;
}

export interface ExportRange {
  readonly first: number;
  /** After the last entry. */
  readonly end: number;
  /** A size whose checkpoint the reader has: that one, or the next kept one, is in the export. */
  readonly since?: number | undefined;
  /** The checkpoint that proves it; the last one if absent. */
  readonly checkpoint?: SignedNote | undefined;
}

/** Earlier checkpoints of an export, with those of its range first. */
const MAX_EARLIER = 64;

/**
 * The lines of a range, by the last checkpoint. Throws `not_found` where it does not cover the range,
 * and `gone` where retention removed some.
 */
export async function* exportLines(
  log: EventStore,
  { first, end, since, checkpoint = log.checkpoint }: ExportRange,
): AsyncGenerator<string, void> {
  if (!checkpoint) throw notCovered(end, 0);
  const { size } = parseCheckpoint(checkpoint.text);
  if (end > size) throw notCovered(end, size);
  if (!(first >= 0 && first < end)) {
    throw new AppError("invalid_value", `no events are from ${first} to before ${end}`);
  }
  const pages = log.stream(first);
  // The first page is read before any line is made, so that a removed entry ends with an error alone.
  let page = await pages.next();
  const tree = log.tree(size);
  const left = await tree.subtreeRoots({ begin: 0, end: first });
  const right = await tree.subtreeRoots({ begin: end, end: size });
  yield line({ head: head(first, end, checkpoint, { left, right }) });
  for (const earlier of earlierSizes(log.checkpointSizes, { first, end, since }, size)) {
    const note = await log.checkpointFrom(earlier);
    if (!note) continue;
    const proof = (await log.proveConsistency(earlier, size)).map(encodeBase64);
    yield line({ earlier: { checkpoint: formatNote(note), proof } });
  }
  for (let next = first; next < end && !page.done; page = await pages.next()) {
    for (const data of page.value.entries.slice(0, end - next)) {
      yield line({ entry: { sequence: next++, data: encodeBase64(data) } });
    }
    if (next === end) break;
  }
  await pages.return();
}

/** Sizes that are spread over the range, the last one before it, and that of `since`. */
function earlierSizes(
  kept: readonly number[],
  { first, end, since }: ExportRange,
  size: number,
): number[] {
  const older = kept.filter((each) => each < size);
  const within = older.filter((each) => each > first && each <= end);
  const step = Math.ceil(within.length / MAX_EARLIER);
  const before = older.findLast((each) => each <= first);
  const known = since === undefined ? undefined : older.find((each) => each >= since);
  const chosen = [...within.filter((_, at) => at % step === 0), before, known];
  return [...new Set(chosen)].filter((each) => each !== undefined).sort((a, b) => a - b);
}

function head(
  first: number,
  end: number,
  checkpoint: SignedNote,
  { left, right }: { readonly left: readonly Uint8Array[]; readonly right: readonly Uint8Array[] },
): ExportHead {
  return {
    format: EXPORT_FORMAT,
    first,
    end,
    checkpoint: formatNote(checkpoint),
    left: left.map(encodeBase64),
    right: right.map(encodeBase64),
  };
}

function line(value: ExportLine): string {
  return `${JSON.stringify(value)}\n`;
}

function notCovered(end: number, size: number): AppError {
  const message = `the last checkpoint covers ${size} events, and the export needs ${end}`;
  return new AppError("not_found", `${message}. Try again after the next checkpoint`);
}
