import { AppError } from "@heddle/base/errors";

/** What work that was aborted gets to clean up before it is left to itself. */
const CLEANUP_MS = 1_000;

/**
 * The promise's result, or the signal's reason soon after it aborts. For work that may not stop,
 * such as a read from a file server that does not answer.
 */
export async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  let timer: NodeJS.Timeout | undefined;
  const onAbort = () => {
    timer = setTimeout(() => reject(signal.reason), CLEANUP_MS);
  };
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  // The loser of the race may still reject.
  work.catch(() => undefined);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

/** The source's items until the signal aborts, also where the source ignores it. */
export async function* itemsUntil<T>(
  source: AsyncIterable<T>,
  signal: AbortSignal,
): AsyncGenerator<T, void> {
  const items = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await orAborted(items.next(), signal);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // A source that waits for ever ends never.
    items.return?.().catch(() => undefined);
  }
}

/** A signal that aborts after `ms` without a call of `touch`, and with `parent`. */
export function idleSignal(
  parent: AbortSignal,
  ms: number,
  what: string,
): { readonly signal: AbortSignal; touch(): void; stop(): void } {
  const idle = new AbortController();
  const timer = setTimeout(() => {
    idle.abort(new AppError("unavailable", `${what} gave no data for ${ms} ms`));
  }, ms);
  return {
    signal: AbortSignal.any([parent, idle.signal]),
    touch: () => timer.refresh(),
    stop: () => clearTimeout(timer),
  };
}
