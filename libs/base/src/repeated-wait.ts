/**
 * Waits repeatedly for one promise, `ms` milliseconds at a time; undefined if it has not settled by
 * then. A wait leaves no handler on the promise, unlike each Promise.race until it settles.
 */
export function repeatedWait<T>(promise: Promise<T>): (ms: number) => Promise<T | undefined> {
  let isEnded = false;
  let wake = () => {};
  const settle = () => {
    isEnded = true;
    wake();
  };
  promise.then(settle, settle);
  return async (ms) => {
    if (!isEnded) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    return isEnded ? promise : undefined;
  };
}
