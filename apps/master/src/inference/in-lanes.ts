/** Works on the items in order, several at once; the first failure ends the others. */
export async function inLanes<Item>(
  items: Iterable<Item>,
  lanes: number,
  signal: AbortSignal,
  work: (item: Item, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const rest = items[Symbol.iterator]();
  const lane = async () => {
    for (let next = rest.next(); !next.done; next = rest.next()) await work(next.value, either);
  };
  const ends = Array.from({ length: lanes }, () =>
    lane().catch((error: unknown) => {
      // The first reason stays.
      failed.abort(error);
    }),
  );
  await Promise.all(ends);
  failed.signal.throwIfAborted();
}
