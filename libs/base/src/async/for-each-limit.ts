/**
 * Does the work for each item, at most `limit` at a time. After an error it starts no further item,
 * and rejects with the error once the running ones have ended.
 */
export async function forEachLimit<T>(
  items: Iterable<T>,
  limit: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = [...items];
  const failures: unknown[] = [];
  let next = 0;
  const worker = async () => {
    while (next < queue.length && failures.length === 0) {
      try {
        await work(queue[next++] as T);
      } catch (error) {
        failures.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, queue.length) }, worker));
  if (failures.length > 0) throw failures[0];
}
