/**
 * Resolves after the time, or at once when the signal aborts. With `ref: false` it does not keep the
 * process alive.
 */
export function abortableDelay(
  ms: number,
  signal?: AbortSignal,
  { ref = true } = {},
): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    if (!ref) timer.unref();
    signal?.addEventListener("abort", end, { once: true });
  });
}
