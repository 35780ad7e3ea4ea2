import { AppError, type ErrorCode, type ErrorDetails } from "@heddle/base/errors";

/** As llama-server and vLLM say it; others have a code for it. */
const TOO_LONG = /exceeds the available context|maximum context length/i;
/** Characters of an upstream's own message that its caller sees. */
const MAX_MESSAGE = 500;
const MAX_PARAM = 200;

/** A failure of an upstream, and whether the same request may succeed shortly. */
export class UpstreamFault extends AppError {
  readonly isPassing: boolean;

  constructor(code: ErrorCode, message: string, isPassing: boolean, details: ErrorDetails = {}) {
    super(code, message, details);
    this.isPassing = isPassing;
  }
}

/** What is no answer of the contract. A repetition would hardly be one. */
export function garbage(what: string): UpstreamFault {
  return new UpstreamFault("answer_failed", `the model's upstream sent ${what}`, false);
}

/** The connection failed, or broke off. */
export function broken(how: string, cause?: unknown): UpstreamFault {
  const message = `the model's upstream ${how}`;
  return new UpstreamFault("engine_failed", message, true, { cause });
}

interface ErrorBody {
  readonly code?: unknown;
  readonly message?: unknown;
  readonly param?: unknown;
}

interface HttpFault {
  readonly status: number;
  /** Its body, perhaps cut off. */
  readonly text: string;
  readonly retryAfterMs: number | undefined;
  /** Whether the probe asks the same endpoint: others may be absent. */
  readonly isProbed: boolean;
  /** The worker's key, which an upstream may repeat to callers who must not know it. */
  readonly apiKey: string | undefined;
}

const NO_ENDPOINT: ReadonlySet<number> = new Set([404, 405, 501]);

/** The fault of an answer with a status other than 200. */
export function httpFault(fault: HttpFault): UpstreamFault {
  const { status, text, retryAfterMs, isProbed, apiKey } = fault;
  const body = errorOf(parsed(text), apiKey);
  if (!isProbed && NO_ENDPOINT.has(status)) {
    const message = `This model's upstream has no such endpoint: it answered with status ${status}.`;
    return new UpstreamFault("unsupported_parameter", message, false, { param: "model" });
  }
  if (status === 429 || status === 503) {
    const message = `the model's upstream takes no more requests now (status ${status})`;
    return new UpstreamFault("overloaded", message, true, { retryAfterMs });
  }
  if (status === 400 || status === 413 || status === 422) return refused(status, body);
  const why = explained(status);
  const message = `the model's upstream answered with status ${status}${why && `: ${why}`}`;
  return new UpstreamFault("answer_failed", message, status === 408 || status >= 500);
}

/** The fault that a stream has in place of an answer, or in the middle of it, without the worker's key. */
export function streamedFault(error: unknown, apiKey: string | undefined): UpstreamFault {
  const { code, message, param } = errorOf({ error }, apiKey) ?? {};
  const status = Number(code);
  if (status === 400 || code === "invalid_value" || code === "context_length_exceeded") {
    return refused(400, { code, message, param });
  }
  const isFull = status === 429 || status === 503 || code === "overloaded";
  const text = `the model's upstream failed: ${shown(message)}`;
  return new UpstreamFault(isFull ? "overloaded" : "answer_failed", text, true);
}

/** The upstream found a fault in the request, which is the caller's. */
function refused(status: number, body: ErrorBody | undefined): UpstreamFault {
  const { param } = body ?? {};
  const code = status === 413 ? "request_too_large" : refusalCode(body);
  const message = `The model's upstream refused the request: ${shown(body?.message)}`;
  const named = typeof param === "string" && param !== "" ? param.slice(0, MAX_PARAM) : undefined;
  return new UpstreamFault(code, message, false, { param: named });
}

function refusalCode({ code, message }: ErrorBody = {}): ErrorCode {
  if (code === "context_length_exceeded" || code === "unsupported_parameter") return code;
  return TOO_LONG.test(String(message)) ? "context_length_exceeded" : "invalid_value";
}

function explained(status: number): string {
  if (status === 401 || status === 403) return "the worker's key for it is not accepted";
  if (status === 404) return "it does not know the model, or has no such endpoint";
  if (status >= 300 && status < 400) return "redirects are not followed; name the final address";
  return "";
}

function shown(message: unknown): string {
  return typeof message === "string" && message !== ""
    ? message.slice(0, MAX_MESSAGE)
    : "it gave no reason";
}

function errorOf(body: unknown, apiKey: string | undefined): ErrorBody | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  const error = "error" in body ? body.error : body;
  if (typeof error === "string") return { message: masked(error, apiKey) };
  if (typeof error !== "object" || error === null) return undefined;
  const { code, message, param } = error as ErrorBody;
  return { code, message: masked(message, apiKey), param: masked(param, apiKey) };
}

function masked(text: unknown, apiKey: string | undefined): unknown {
  return typeof text === "string" && apiKey ? text.replaceAll(apiKey, "***") : text;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
