/** Entries that follow each other, the first with that sequence number. */
export interface EntryPage {
  readonly first: number;
  readonly entries: readonly Uint8Array[];
}

export interface FollowOptions {
  /** Waits for further entries. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
}

/** What a stream needs of a log. */
interface FollowedLog {
  readonly size: number;
  read(from: number): Promise<EntryPage>;
  grownBeyond(size: number, signal?: AbortSignal): Promise<void>;
}

/**
 * The pages of a log from an entry on. The next page is read when the last one is used: a slow reader
 * holds one page, and no queue grows. The log itself is the buffer.
 */
export async function* followLog(
  log: FollowedLog,
  from: number,
  { follow = false, signal }: FollowOptions,
): AsyncGenerator<EntryPage, void> {
  const end = follow ? Number.POSITIVE_INFINITY : log.size;
  for (let next = from; next < end; ) {
    signal?.throwIfAborted();
    if (next === log.size) await log.grownBeyond(next, signal);
    const page = await log.read(next);
    const entries = page.entries.slice(0, end - next);
    yield { first: next, entries };
    next += entries.length;
  }
}
