const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 8_000;
/** For a longer wait the caller gets the error at once and decides. */
const MAX_ASKED_WAIT_MS = 60_000;

/** What decides whether a request is retried. */
export interface RetryAdvice {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  /** Whether the cluster applies a repeated request at most once. */
  readonly isIdempotent: boolean;
}

/**
 * Whether to retry the same request. The cluster's advice decides. Without it: 408, 429 and 5xx;
 * not 409, which the cluster marks if it is temporary.
 */
export function isWorthRetrying({ status, headers, isIdempotent }: RetryAdvice): boolean {
  const advice = headers.get("x-should-retry");
  if (advice === "true") return true;
  // `outcome_unknown`: the change may have been made; its key prevents a second one.
  if (advice === "false") return status === 503 && isIdempotent;
  return status === 408 || status === 429 || status >= 500;
}

/**
 * Whether no connection was established, so that even a change may go to another master. The code
 * alone is not enough: an established connection may end with `EHOSTUNREACH` too.
 */
export function wasNeverSent(error: Error): boolean {
  return connectErrors(error).every((each) => each?.syscall === "connect");
}

/** Whether this machine refused the connection: nothing listens on that port. */
export function wasRefusedOnLoopback(error: Error): boolean {
  return connectErrors(error).every(
    (each) => each?.code === "ECONNREFUSED" && /^(127\.|::1$)/.test(each.address ?? ""),
  );
}

/** The system errors that caused a call's error; one for each address of a name. */
function connectErrors({ cause }: Error): readonly (SystemError | undefined)[] {
  const { cause: why } = (cause ?? {}) as { readonly cause?: SystemError };
  return why?.errors?.length ? why.errors : [why];
}

/** A system error as Node reports it. */
interface SystemError {
  readonly syscall?: string | undefined;
  readonly code?: string | undefined;
  readonly address?: string | undefined;
  readonly errors?: readonly SystemError[] | undefined;
}

/**
 * Milliseconds before try `attempt` (1 is the first retry): the requested time, else doubling with
 * a jitter of a quarter. Undefined if the requested time exceeds a minute. `chance` is in 0..1.
 */
export function retryWaitMs(
  attempt: number,
  headers: RetryAdvice["headers"] | undefined,
  chance: number,
  nowMs: number,
): number | undefined {
  const askedMs = headers && askedWaitMs(headers, nowMs);
  if (askedMs !== undefined) return askedMs <= MAX_ASKED_WAIT_MS ? askedMs : undefined;
  const waitMs = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** (attempt - 1));
  return waitMs * (1 - 0.25 * chance);
}

function askedWaitMs(headers: RetryAdvice["headers"], nowMs: number): number | undefined {
  const exact = amount(headers.get("retry-after-ms"));
  if (exact !== undefined) return exact;
  const given = headers.get("retry-after");
  const seconds = amount(given);
  if (seconds !== undefined) return seconds * 1_000;
  const atMs = given === null ? Number.NaN : Date.parse(given);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs);
}

function amount(text: string | null): number | undefined {
  return text !== null && /^\d+(\.\d+)?$/.test(text) ? Number(text) : undefined;
}

/** Resolves after the time, or at once when the signal aborts. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
  });
}
