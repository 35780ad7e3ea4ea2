/**
 * Whether the work resolves within the time; rejects where it rejects before. It is not
 * cancelled then. The timer keeps no process alive.
 */
export async function resolvesWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const late = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => late.resolve(false), ms);
  timer.unref();
  try {
    return await Promise.race([work.then(() => true), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
