/** The promise. It may reject before it is awaited, as it does after a failure of the test itself. */
export function held<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
