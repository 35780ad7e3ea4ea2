/** `node:timers/promises` on the timers of the simulated process. */

interface Options {
  readonly signal?: AbortSignal;
}

export function setTimeout<T>(ms?: number, value?: T, { signal }: Options = {}): Promise<T> {
  return abortable(signal, (resolve) => {
    const timer = globalThis.setTimeout(() => resolve(value as T), ms);
    return () => globalThis.clearTimeout(timer);
  });
}

export function setImmediate<T>(value?: T, { signal }: Options = {}): Promise<T> {
  return abortable(signal, (resolve) => {
    const timer = globalThis.setImmediate(() => resolve(value as T));
    return () => globalThis.clearImmediate(timer);
  });
}

function abortable<T>(
  signal: AbortSignal | undefined,
  start: (resolve: (value: T) => void) => () => void,
): Promise<T> {
  const aborted = () =>
    Object.assign(new Error("The operation was aborted", { cause: signal?.reason }), {
      name: "AbortError",
      code: "ABORT_ERR",
    });
  if (signal?.aborted) return Promise.reject(aborted());
  return new Promise((resolve, reject) => {
    const cancel = start((value) => {
      signal?.removeEventListener("abort", onAbort);
      resolve(value);
    });
    const onAbort = () => {
      cancel();
      reject(aborted());
    };
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
