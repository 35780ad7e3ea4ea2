/** Work in steps. Between two steps the caller may do other work. */
export type Steps<T> = Generator<void, T>;

/** Runs all steps at once and returns the result. */
export function runToEnd<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}
