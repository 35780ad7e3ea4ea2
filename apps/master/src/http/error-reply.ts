import { STATUS_CODES } from "node:http";
import { type AppError, ERROR_TABLE, type ErrorCode } from "@heddle/base/errors";
import { errorFormatOf } from "@heddle/contracts/api/operations";
import { RequestFaults } from "@heddle/contracts/validation";

/** An error as one HTTP answer: status, headers and body text. */
export interface ErrorReply {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** Characters of a path that a message shows. */
const MAX_SHOWN_CHARS = 200;

/** The path as a message shows it: kilobytes are not sent back. */
export function shownPath(path: string): string {
  return path.length > MAX_SHOWN_CHARS ? `${path.slice(0, MAX_SHOWN_CHARS)}...` : path;
}

/** The answer for an error on a path, in the format of the path's API. */
export function errorReply(
  error: AppError,
  requestId: string,
  path: string,
  status: number = ERROR_TABLE[error.code].http,
): ErrorReply {
  const format = errorFormatOf(path);
  return {
    status,
    headers: {
      "content-type":
        format === "problem" ? "application/problem+json" : "application/json; charset=utf-8",
      ...(format === "anthropic" && { "request-id": requestId }),
      ...errorHeaders(error),
    },
    body: bodyOf(format, error, requestId, path, status),
  };
}

function bodyOf(
  format: ReturnType<typeof errorFormatOf>,
  error: AppError,
  requestId: string,
  path: string,
  status: number,
): string {
  if (format === "problem") return problemBody(error, requestId, path, status);
  return format === "openai"
    ? envelopeBody(error, requestId)
    : messagesErrorBody(error, requestId, status);
}

/** The headers that the official SDKs read to decide on a retry, and RFC 6750's challenge. */
function errorHeaders(error: AppError): Record<string, string> {
  const headers: Record<string, string> = { "x-should-retry": String(canRetry(error)) };
  if (error.retryAfterMs !== undefined) {
    const waitMs = Math.max(1, Math.ceil(error.retryAfterMs));
    headers["retry-after-ms"] = String(waitMs);
    headers["retry-after"] = String(Math.ceil(waitMs / 1000));
  }
  if (error.code === "invalid_api_key") headers["www-authenticate"] = 'Bearer realm="heddle"';
  return headers;
}

/** OpenAI's error body; the first four members are always present. */
export function envelopeBody(error: AppError, requestId: string): string {
  return JSON.stringify({
    error: {
      message: error.message,
      type: typeOf(error.code),
      param: error.param ?? null,
      code: error.code,
      request_id: requestId,
      retryable: canRetry(error),
      ...(error.node !== undefined && { node: error.node }),
      ...(error.model !== undefined && { model: error.model }),
    },
  });
}

/** Anthropic's error body. */
export function messagesErrorBody(
  error: AppError,
  requestId: string,
  status: number = ERROR_TABLE[error.code].http,
): string {
  const { message, param = null, code } = error;
  const type = MESSAGES_ERROR_TYPES[status] ?? (status >= 500 ? "api_error" : OTHER_FAULT);
  return JSON.stringify({
    type: "error",
    error: { type, message, param, code, retryable: canRetry(error) },
    request_id: requestId,
  });
}

const OTHER_FAULT = "invalid_request_error";
const MESSAGES_ERROR_TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
  504: "timeout_error",
};

function problemBody(error: AppError, requestId: string, path: string, status: number): string {
  return JSON.stringify({
    type: `urn:heddle:error:${error.code}`,
    title: STATUS_CODES[status] ?? error.code,
    status,
    detail: error.message,
    instance: path,
    code: error.code,
    errors: faultsOf(error),
    request_id: requestId,
    retryable: canRetry(error),
  });
}

function faultsOf(error: AppError): { pointer: string; code: string; detail: string }[] {
  if (error.cause instanceof RequestFaults) {
    return error.cause.faults.map(({ param, path, code, message }) => ({
      pointer: pointerOf(path ?? stepsOf(param)),
      code,
      detail: message,
    }));
  }
  if (error.param === undefined) return [];
  return [{ pointer: pointerOf(stepsOf(error.param)), code: error.code, detail: error.message }];
}

/** `messages[0].content` as steps. */
function stepsOf(param: string): readonly string[] {
  return param === "" ? [] : param.replace(/\[(\d+)\]/g, ".$1").split(".");
}

/** `messages`, `0`, `content` as the JSON pointer fragment `#/messages/0/content` (RFC 6901). */
function pointerOf(path: readonly PropertyKey[]): string {
  const escaped = path.map((step) => String(step).replaceAll("~", "~0").replaceAll("/", "~1"));
  return ["#", ...escaped].join("/");
}

/** A limit that waiting cannot lift has no wait time: such a call must not be retried. */
function canRetry(error: AppError): boolean {
  if (error.code === "rate_limit_exceeded") return error.retryAfterMs !== undefined;
  return error.retryable;
}

function typeOf(code: ErrorCode): string {
  const status = ERROR_TABLE[code].http;
  if (status === 403) return "permission_error";
  if (status === 429) return code === "insufficient_quota" ? code : "rate_limit_error";
  if (status === 408 || status === 504) return "timeout_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}
