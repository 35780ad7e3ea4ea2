import { AppError, type ErrorCode, isErrorCode, toAppError } from "@heddle/base/errors";
import { wasNeverSent } from "@heddle/client/retry";
import type { Connection } from "../connection.ts";

/** A refusal by the cluster: an operating error that also knows which request it was. */
export class ApiError extends AppError {
  readonly requestId: string | undefined;
  readonly status: number;

  constructor(code: ErrorCode, message: string, response: { status: number; requestId?: string }) {
    super(code, message);
    this.status = response.status;
    this.requestId = response.requestId;
  }
}

interface CallOptions {
  readonly method?: "GET" | "POST" | "DELETE";
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
  /** Until the answer's head; a stream may last longer. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 30_000;
/** How long a master may leave a read without an answer where there are others to ask. */
const ASK_ANOTHER_MS = 5_000;

/** Calls to one cluster over HTTP. Everything that fails is an AppError. */
export class ApiClient {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  get endpoint(): string {
    return this.#connection.endpoint;
  }

  /** The answer's JSON; undefined for an answer without a body. */
  async json(path: string, options: CallOptions = {}): Promise<unknown> {
    const response = await this.stream(path, options);
    const text = await readText(response, path);
    if (text === "") return undefined;
    try {
      return JSON.parse(text);
    } catch (error) {
      const message = `${this.endpoint}${path} answered with something that is not JSON. Is it Heddle?`;
      throw new AppError("unavailable", message, { cause: error });
    }
  }

  /** The answer once its head is here and says success; its body is the caller's to read. */
  async stream(path: string, options: CallOptions = {}): Promise<Response> {
    const response = await this.#fetch(path, options);
    if (response.ok) return response;
    const error = await refusal(response, path);
    throw response.status === 401 ? this.#explained(error) : error;
  }

  /** The master cannot know why a command line has sent no key. */
  #explained(error: ApiError): ApiError {
    const { apiKey, endpoint, endpointSource } = this.#connection;
    if (apiKey !== undefined) return error;
    const why =
      endpointSource === "--endpoint" || endpointSource === "HEDDLE_ENDPOINT"
        ? `: the key that \`heddle up\` keeps is for its own cluster alone, and ${endpoint} (from ${endpointSource}) is another`
        : "";
    const { code, status, requestId } = error;
    const response = { status, ...(requestId ? { requestId } : {}) };
    return new ApiError(code, `No API key was sent${why}.`, response);
  }

  /**
   * Asks one master after the other. The next one is asked only where the call did nothing: it never
   * reached a master, or it was a read that was left without an answer.
   */
  async #fetch(path: string, options: CallOptions): Promise<Response> {
    const { endpoint, others = [] } = this.#connection;
    const all = [endpoint, ...others];
    const isRead = (options.method ?? "GET") === "GET";
    for (const next of all.slice(0, -1)) {
      const timeoutMs = Math.min(options.timeoutMs ?? DEFAULT_TIMEOUT_MS, ASK_ANOTHER_MS);
      try {
        return await this.#ask(next, path, isRead ? { ...options, timeoutMs } : options);
      } catch (error) {
        const failure = toAppError(error);
        const isLate = isRead && failure.code === "deadline_exceeded";
        if (!isLate && !wasNeverSent(failure)) throw error;
      }
    }
    return this.#ask(all.at(-1) as string, path, options);
  }

  async #ask(endpoint: string, path: string, options: CallOptions): Promise<Response> {
    const { apiKey } = this.#connection;
    const deadline = new AbortController();
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const timer = setTimeout(() => deadline.abort(), timeoutMs);
    const signals = options.signal ? [options.signal, deadline.signal] : [deadline.signal];
    try {
      return await fetch(endpoint + path, {
        method: options.method ?? "GET",
        headers: {
          accept: "application/json, text/event-stream",
          ...(apiKey ? { authorization: `Bearer ${apiKey}` } : {}),
          ...(options.body === undefined ? {} : { "content-type": "application/json" }),
        },
        ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
        signal: AbortSignal.any(signals),
      });
    } catch (error) {
      if (options.signal?.aborted) throw new AppError("cancelled", "Interrupted.");
      if (deadline.signal.aborted) {
        const message = `${endpoint}${path} did not answer within ${timeoutMs / 1000} s.`;
        throw new AppError("deadline_exceeded", message);
      }
      throw unreachable({ ...this.#connection, endpoint }, error);
    } finally {
      clearTimeout(timer);
    }
  }
}

function unreachable(connection: Connection, error: unknown): AppError {
  const { endpoint, endpointSource } = connection;
  const cause = (error as { cause?: { code?: string; message?: string } }).cause;
  const why = cause?.code ?? cause?.message ?? (error as Error).message;
  if (why === "bad port") {
    const message = `${endpoint} (from ${endpointSource}) was not asked: browsers and fetch refuse to connect to this port, which the Fetch standard blocks. Have the master listen on another one.`;
    return new AppError("unavailable", message, { cause: error });
  }
  const hint = HINTS.find(([text]) => why.includes(text))?.[1] ?? "";
  const message = `No answer from ${endpoint} (${why}; the address is from ${endpointSource}).${hint}`;
  return new AppError("unavailable", message, { cause: error });
}

/** What is behind some of the words of the libraries below `fetch`. */
const HINTS = [
  ["WRONG_VERSION_NUMBER", " It speaks no TLS: is its address http://, and not https://?"],
  ["HTTP/1.1 protocol", " It speaks no HTTP/1.1: is it a port of gRPC, for nodes alone?"],
] as const;

async function readText(response: Response, path: string): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    throw new AppError("unavailable", `The answer to ${path} broke off.`, { cause: error });
  }
}

const CODE_OF_STATUS: Readonly<Record<number, ErrorCode>> = {
  400: "invalid_value",
  401: "invalid_api_key",
  403: "permission_denied",
  404: "not_found",
  408: "request_timeout",
  409: "conflict",
  412: "precondition_failed",
  413: "request_too_large",
  422: "unprocessable",
  429: "rate_limit_exceeded",
  502: "unavailable",
  503: "unavailable",
  504: "deadline_exceeded",
};

async function refusal(response: Response, path: string): Promise<ApiError> {
  const body = await response.text().catch(() => "");
  const fields = errorFields(body);
  const fallback = CODE_OF_STATUS[response.status] ?? "server_error";
  const message = fields.message ?? `${path} answered ${response.status} without saying why.`;
  const requestId = fields.requestId ?? response.headers.get("x-request-id");
  return new ApiError(isErrorCode(fields.code) ? fields.code : fallback, message, {
    status: response.status,
    ...(requestId ? { requestId } : {}),
  });
}

/**
 * What a refusal says of itself: OpenAI's `error` object, which the inference API and broken streams
 * carry, or the orchestration API's problem details (RFC 9457). All absent where it is neither.
 */
export function errorFields(body: string): {
  code: unknown;
  message: string | undefined;
  requestId: string | undefined;
} {
  const fields = parseFields(body);
  const error = typeof fields["error"] === "object" ? { ...fields["error"] } : undefined;
  const source: Record<string, unknown> = error ?? fields;
  return {
    code: source["code"],
    message: text(source["message"]) ?? text(source["detail"]),
    requestId: text(source["request_id"]),
  };
}

function parseFields(body: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {}; // A proxy's HTML page, say: the status alone must do.
  }
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
