/**
 * The single table of operating errors: what each code means to an HTTP client, a gRPC peer and a
 * shell. Programming errors are not here: they assert and crash.
 *
 * - `http`: the HTTP status.
 * - `grpc`: the canonical gRPC status code (https://grpc.io/docs/guides/status-codes/).
 * - `exit`: the exit code of the CLI.
 * - `retryable`: the same request may succeed later without a change.
 */
export const ERROR_TABLE = {
  invalid_value: { http: 400, grpc: 3, exit: 2, retryable: false },
  missing_required_parameter: { http: 400, grpc: 3, exit: 2, retryable: false },
  unsupported_parameter: { http: 400, grpc: 3, exit: 2, retryable: false },
  invalid_json: { http: 400, grpc: 3, exit: 2, retryable: false },
  context_length_exceeded: { http: 400, grpc: 3, exit: 2, retryable: false },
  previous_response_not_found: { http: 400, grpc: 5, exit: 3, retryable: false },
  invalid_api_key: { http: 401, grpc: 16, exit: 4, retryable: false },
  permission_denied: { http: 403, grpc: 7, exit: 4, retryable: false },
  not_found: { http: 404, grpc: 5, exit: 3, retryable: false },
  model_not_found: { http: 404, grpc: 5, exit: 3, retryable: false },
  method_not_allowed: { http: 405, grpc: 12, exit: 2, retryable: false },
  request_timeout: { http: 408, grpc: 4, exit: 7, retryable: true },
  conflict: { http: 409, grpc: 6, exit: 5, retryable: false },
  gone: { http: 410, grpc: 11, exit: 3, retryable: false },
  precondition_failed: { http: 412, grpc: 9, exit: 5, retryable: false },
  request_too_large: { http: 413, grpc: 3, exit: 2, retryable: false },
  unsupported_media_type: { http: 415, grpc: 3, exit: 2, retryable: false },
  unprocessable: { http: 422, grpc: 3, exit: 2, retryable: false },
  rate_limit_exceeded: { http: 429, grpc: 8, exit: 6, retryable: true },
  insufficient_quota: { http: 429, grpc: 8, exit: 6, retryable: false },
  cancelled: { http: 499, grpc: 1, exit: 130, retryable: false },
  server_error: { http: 500, grpc: 13, exit: 1, retryable: true },
  engine_failed: { http: 502, grpc: 13, exit: 1, retryable: true },
  /** The engine works, and failed this request, which may be why. */
  answer_failed: { http: 502, grpc: 13, exit: 1, retryable: true },
  worker_lost: { http: 502, grpc: 14, exit: 7, retryable: true },
  overloaded: { http: 503, grpc: 8, exit: 7, retryable: true },
  unavailable: { http: 503, grpc: 14, exit: 7, retryable: true },
  /** The change may have been made: without an idempotency key a blind retry is unsafe. */
  outcome_unknown: { http: 503, grpc: 2, exit: 7, retryable: false },
  /** A parameter server is unreachable or lost its state: the job's next attempt restores it. */
  shard_unavailable: { http: 503, grpc: 14, exit: 7, retryable: false },
  /** The master was removed from its group: its process ends with this code and stays down. */
  member_removed: { http: 503, grpc: 9, exit: 8, retryable: false },
  model_loading: { http: 503, grpc: 14, exit: 7, retryable: true },
  /** The model's file is damaged, invalid or unavailable: retries fail until that is repaired. */
  model_failed: { http: 503, grpc: 9, exit: 1, retryable: false },
  /** The replicated state has no space for the request. */
  insufficient_storage: { http: 507, grpc: 8, exit: 7, retryable: false },
  /**
   * The master's memory is too small for the replicated state: it serves nothing until it has more.
   */
  insufficient_memory: { http: 503, grpc: 8, exit: 1, retryable: false },
  deadline_exceeded: { http: 504, grpc: 4, exit: 7, retryable: true },
} as const satisfies Record<
  string,
  { http: number; grpc: number; exit: number; retryable: boolean }
>;

export type ErrorCode = keyof typeof ERROR_TABLE;

/** What an error carries besides its code and message; the caller may see all of it. */
export interface ErrorDetails {
  /** The JSON path of the invalid part of the request, as `messages[0].content`. */
  readonly param?: string | undefined;
  /** The wait before the same request may succeed. */
  readonly retryAfterMs?: number | undefined;
  readonly node?: string | undefined;
  readonly model?: string | undefined;
  readonly cause?: unknown;
}

/** An operating error: expected, typed, and safe to show to the caller. */
export class AppError extends Error {
  override readonly name = "AppError";
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly node: string | undefined;
  readonly model: string | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.param = details.param;
    this.retryAfterMs = details.retryAfterMs;
    this.node = details.node;
    this.model = details.model;
  }

  get retryable(): boolean {
    return ERROR_TABLE[this.code].retryable;
  }
}

export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === "string" && Object.hasOwn(ERROR_TABLE, value);
}

/**
 * The error as an AppError; an unexpected one becomes `server_error` with the original as cause.
 */
export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new AppError("server_error", message, { cause: error });
}
