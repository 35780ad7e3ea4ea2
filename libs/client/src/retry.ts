const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 8_000;
/** Beyond this the caller decides whether to wait, and gets the error at once. */
const MAX_ASKED_WAIT_MS = 60_000;

/** What an answer says of being asked again. */
export interface RetryAdvice {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  /** Whether a repeated request is made at most once by the cluster. */
  readonly isIdempotent: boolean;
}

/**
 * Whether the same request is worth another try. The cluster's own word wins. Without it: 408, 429
 * and 5xx; not 409, which the cluster marks where it passes.
 */
export function isWorthRetrying({ status, headers, isIdempotent }: RetryAdvice): boolean {
  const advice = headers.get("x-should-retry");
  if (advice === "true") return true;
  // `outcome_unknown`: the change may have been made; under its key it is not made twice.
  if (advice === "false") return status === 503 && isIdempotent;
  return status === 408 || status === 429 || status >= 500;
}

/**
 * Whether no connection came about, by the error of a call: even a change may then be asked of another
 * master. The code alone does not tell: a connection that stood may end with `EHOSTUNREACH` as well.
 */
export function wasNeverSent(error: Error): boolean {
  return connectErrors(error).every((each) => each?.syscall === "connect");
}

/** Whether this machine itself refused the connection: nothing listens at that port. */
export function wasRefusedOnLoopback(error: Error): boolean {
  return connectErrors(error).every(
    (each) => each?.code === "ECONNREFUSED" && /^(127\.|::1$)/.test(each.address ?? ""),
  );
}

/** The system's errors behind a call's; of a name with several addresses one for each. */
function connectErrors({ cause }: Error): readonly (SystemError | undefined)[] {
  const { cause: why } = (cause ?? {}) as { readonly cause?: SystemError };
  return why?.errors?.length ? why.errors : [why];
}

/** As Node tells of what the system refused. */
interface SystemError {
  readonly syscall?: string | undefined;
  readonly code?: string | undefined;
  readonly address?: string | undefined;
  readonly errors?: readonly SystemError[] | undefined;
}

/**
 * Milliseconds to wait before try `attempt` (1 is the first retry): as long as the cluster asked,
 * else doubling with a jitter of a quarter. Undefined where it asked for more than a minute.
 * `chance` is in 0..1.
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
