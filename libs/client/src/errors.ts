/** The facts of a failed request; names as on the wire. */
export interface ErrorFacts {
  /** An error code of the cluster: `not_found`, `conflict`, ... */
  readonly code: string;
  /** The HTTP status; absent if there was no response. */
  readonly status?: number | undefined;
  readonly request_id?: string | undefined;
  /** Whether the same request may succeed later. */
  readonly retryable?: boolean | undefined;
  /** The faults of a refused request. */
  readonly errors?: readonly RequestFault[] | undefined;
  readonly cause?: unknown;
}

/** One fault of a request: a JSON pointer to the field, and the reason. */
export interface RequestFault {
  readonly pointer: string;
  readonly code: string;
  readonly detail: string;
}

/** Any failed call. The subclass, `code` or `status` says what failed. */
export class HeddleError extends Error {
  readonly code: string;
  readonly status: number | undefined;
  readonly request_id: string | undefined;
  readonly retryable: boolean;
  readonly errors: readonly RequestFault[];

  constructor(message: string, facts: ErrorFacts) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code;
    this.status = facts.status;
    this.request_id = facts.request_id;
    this.retryable = facts.retryable ?? false;
    this.errors = facts.errors ?? [];
  }
}

/** There was no response, or it ended early. */
export class ConnectionError extends HeddleError {}
/** There was no response in time. */
export class TimeoutError extends HeddleError {}
/** The caller's signal ended the call. */
export class AbortedError extends HeddleError {}
/** 400: the request is wrong. */
export class BadRequestError extends HeddleError {}
/** 401: the key is missing or unknown. */
export class AuthenticationError extends HeddleError {}
/** 403: the key lacks the permission. */
export class PermissionDeniedError extends HeddleError {}
/** 404. */
export class NotFoundError extends HeddleError {}
/** 409: a conflict with the present state. */
export class ConflictError extends HeddleError {}
/** 410: the requested events are no longer kept. */
export class GoneError extends HeddleError {}
/** 412: the resource has changed since it was read. */
export class PreconditionFailedError extends HeddleError {}
/** 422: valid, but it cannot be done. */
export class UnprocessableError extends HeddleError {}
/** 429: too many calls, or the quota is used up. */
export class RateLimitError extends HeddleError {}
/** 500 and above. */
export class ServerError extends HeddleError {}

const CLASS_OF_STATUS: Readonly<Record<number, typeof HeddleError>> = {
  400: BadRequestError,
  401: AuthenticationError,
  403: PermissionDeniedError,
  404: NotFoundError,
  408: TimeoutError,
  409: ConflictError,
  410: GoneError,
  412: PreconditionFailedError,
  422: UnprocessableError,
  429: RateLimitError,
};

const CODE_OF_STATUS: Readonly<Record<number, string>> = {
  401: "invalid_api_key",
  403: "permission_denied",
  404: "not_found",
  408: "request_timeout",
  409: "conflict",
  412: "precondition_failed",
  413: "request_too_large",
  422: "unprocessable",
  429: "rate_limit_exceeded",
  500: "server_error",
  501: "server_error",
  504: "deadline_exceeded",
};

/** The error of a response by its status and body; the body may be anything. */
export function errorOf(response: Response, body: string): HeddleError {
  const { status, headers, url } = response;
  const fields = errorFields(body);
  const Type = CLASS_OF_STATUS[status] ?? (status >= 500 ? ServerError : BadRequestError);
  const asked = url === "" ? "The cluster" : url.replace(/\?.*$/, "");
  const unexplained = `${asked} answered ${status} without saying why. Is it Heddle?`;
  return new Type(messageOf(fields) ?? unexplained, {
    code: textOf(fields["code"]) ?? codeOfStatus(status),
    status,
    request_id: textOf(fields["request_id"]) ?? headers.get("x-request-id") ?? undefined,
    retryable: fields["retryable"] === true,
    errors: faultsOf(fields["errors"]),
  });
}

/** Throws for a page, which no call answers: the address is another program's, or a proxy's. */
export function refusePage({ headers, url }: Response): void {
  if (!headers.get("content-type")?.startsWith("text/html")) return;
  const message = `${url} answered with a page in place of data. Is it Heddle?`;
  throw new ServerError(message, { code: "unavailable" });
}

/** The error in an event of a stream; undefined if the event is none. */
export function streamedError(data: string): HeddleError | undefined {
  const fields = errorFields(data);
  const message = messageOf(fields);
  if (message === undefined) return undefined;
  return new ServerError(message, {
    code: textOf(fields["code"]) ?? "server_error",
    request_id: textOf(fields["request_id"]),
    retryable: fields["retryable"] === true,
  });
}

/** OpenAI's `error` object on the inference routes, problem details (RFC 9457) on all others. */
function errorFields(body: string): Record<string, unknown> {
  const fields = parseFields(body);
  return fieldsOf(fields["error"]) ?? fields;
}

function messageOf(fields: Record<string, unknown>): string | undefined {
  return textOf(fields["message"]) ?? textOf(fields["detail"]);
}

function codeOfStatus(status: number): string {
  return CODE_OF_STATUS[status] ?? (status >= 500 ? "unavailable" : "invalid_value");
}

function faultsOf(value: unknown): RequestFault[] {
  if (!Array.isArray(value)) return [];
  return value.map((item) => {
    const { pointer, code, detail } = fieldsOf(item) ?? {};
    return {
      pointer: textOf(pointer) ?? "#",
      code: textOf(code) ?? "",
      detail: textOf(detail) ?? "",
    };
  });
}

function parseFields(body: string): Record<string, unknown> {
  try {
    return fieldsOf(JSON.parse(body)) ?? {};
  } catch {
    return {}; // A proxy's HTML page, say: the status alone must do.
  }
}

function fieldsOf(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null ? { ...value } : undefined;
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
