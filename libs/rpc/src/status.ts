import { Metadata, type ServiceError, type StatusObject, status } from "@grpc/grpc-js";
import { AppError, ERROR_TABLE, isErrorCode, toAppError } from "@heddle/base/errors";
import { TOKEN_MISMATCH } from "./token/handshake.ts";

/** The trailer with the error code, which is finer than the gRPC status. */
const ERROR_CODE_KEY = "heddle-error-code";
const RETRY_AFTER_KEY = "heddle-retry-after-ms";

/** The error as a gRPC status: the table's status, the message, and the error code in a trailer. */
export function toStatus(error: unknown): StatusObject {
  const appError = toAppError(error);
  const metadata = new Metadata();
  metadata.set(ERROR_CODE_KEY, appError.code);
  if (appError.retryAfterMs !== undefined) {
    metadata.set(RETRY_AFTER_KEY, String(Math.ceil(appError.retryAfterMs)));
  }
  return { code: ERROR_TABLE[appError.code].grpc, details: appError.message, metadata };
}

/** The error of a failed call, as the peer threw it if it set an error code. */
export function fromStatus(error: unknown, peer: string): AppError {
  if (error instanceof AppError) return error;
  if (!isServiceError(error)) return toAppError(error);
  const code = error.metadata?.get(ERROR_CODE_KEY)[0];
  const retryAfterMs = Number(error.metadata?.get(RETRY_AFTER_KEY)[0] ?? Number.NaN);
  // A starting node registers its services one by one, and an older version may lack one.
  const why =
    error.code === status.UNIMPLEMENTED
      ? "it does not serve this yet: it is starting, or of another version"
      : error.message;
  // For a refused connection grpc-js passes only the text.
  const hasTokenMismatch =
    error.code === status.UNAVAILABLE && error.details.includes(TOKEN_MISMATCH);
  const fitting = hasTokenMismatch ? "invalid_api_key" : codeOfStatus(error.code);
  return new AppError(
    isErrorCode(code) ? code : fitting,
    isErrorCode(code) ? error.details : `the call to ${peer} failed: ${why}`,
    {
      cause: error,
      node: peer,
      ...(Number.isFinite(retryAfterMs) ? { retryAfterMs } : {}),
    },
  );
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && typeof error.code === "number";
}

function codeOfStatus(code: status): AppError["code"] {
  switch (code) {
    case status.CANCELLED:
      return "cancelled";
    case status.INVALID_ARGUMENT:
      return "invalid_value";
    case status.DEADLINE_EXCEEDED:
      return "deadline_exceeded";
    case status.NOT_FOUND:
      return "not_found";
    case status.ALREADY_EXISTS:
    case status.ABORTED:
      return "conflict";
    case status.PERMISSION_DENIED:
      return "permission_denied";
    case status.UNAUTHENTICATED:
      return "invalid_api_key";
    case status.RESOURCE_EXHAUSTED:
      return "overloaded";
    case status.FAILED_PRECONDITION:
      return "precondition_failed";
    case status.UNAVAILABLE:
      return "unavailable";
    default:
      return "server_error";
  }
}
