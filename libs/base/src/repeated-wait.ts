/**
 * Waits for one promise again and again, so many milliseconds at a time; undefined where it has not settled
 * by then. Nothing of a wait stays on the promise, as each Promise.race would until it settles.
 */
export function repeatedWait<T>(promise: Promise<T>): (ms: number) => Promise<T | undefined> {
  let isOver = false;
  let wake = () => {};
  const settle = () => {
    isOver = true;
    wake();
  };
  promise.then(settle, settle);
  return async (ms) => {
    if (!isOver) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    return isOver ? promise : undefined;
  };
}
