import { orAborted } from "@heddle/base/async/or-aborted";
import { AppError } from "@heddle/base/errors";

/** What work that was aborted gets to clean up before it is left to itself. */
export const CLEANUP_MS = 1_000;

/** The source's items until the signal aborts, also where the source ignores it. */
export async function* itemsUntil<T>(
  source: AsyncIterable<T>,
  signal: AbortSignal,
): AsyncGenerator<T, void> {
  const items = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await orAborted(items.next(), signal, CLEANUP_MS);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // A source that waits forever never ends.
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
