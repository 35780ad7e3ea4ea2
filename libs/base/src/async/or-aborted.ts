/**
 * The result of the work, or the signal's reason once it aborts: then the work continues unseen. It
 * gets `cleanupMs` to end by itself.
 */
export async function orAborted<T>(
  work: Promise<T>,
  signal: AbortSignal,
  cleanupMs = 0,
): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  let timer: NodeJS.Timeout | undefined;
  const onAbort = () => {
    if (cleanupMs === 0) reject(signal.reason);
    else timer = setTimeout(() => reject(signal.reason), cleanupMs);
  };
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}
