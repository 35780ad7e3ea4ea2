/**
 * Does the work for each item in order, at most `limit` at a time. After the first error, or an
 * abort of `signal`, no further item starts; running ones are aborted, and its reason is thrown at
 * their end.
 */
export async function forEachLimit<T>(
  items: Iterable<T>,
  limit: number,
  work: (item: T, signal: AbortSignal) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const failed = new AbortController();
  const either = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
  const rest = items[Symbol.iterator]();
  let isAtEnd = false;
  const worker = async () => {
    while (!either.aborted) {
      const next = rest.next();
      if (next.done) {
        isAtEnd = true;
        return;
      }
      await work(next.value, either);
    }
  };
  // Of several errors the first stays the reason.
  const ended = () => worker().catch((error: unknown) => failed.abort(error));
  const workers: Promise<void>[] = [];
  while (workers.length < limit && !isAtEnd && !either.aborted) workers.push(ended());
  await Promise.all(workers);
  failed.signal.throwIfAborted();
  signal?.throwIfAborted();
}
