import {
  AbortedError,
  AuthenticationError,
  ConnectionError,
  errorOf,
  HeddleError,
  refusePage,
  ServerError,
  TimeoutError,
} from "./errors.ts";
import {
  isWorthRetrying,
  pause,
  retryWaitMs,
  wasNeverSent,
  wasRefusedOnLoopback,
} from "./retry.ts";

/** The cluster's address, the credentials and the limits of a call. */
export interface HeddleOptions extends CommandLineOptions {
  /** A master, a load balancer, or several masters, which are tried in turn. */
  readonly endpoint: string | readonly string[];
  readonly auth_token?: string | undefined;
  /** Returns the key for each request, for keys that change. */
  readonly auth?: (() => string | Promise<string>) | undefined;
  /** The project in which every call acts; by default the caller's own. */
  readonly project?: string | undefined;
  /** Every call has only what this role grants in that project; by default all that the caller may do. */
  readonly role?: string | undefined;
  /** Milliseconds for one try; of a stream, until its head. Default: 30,000. */
  readonly timeout?: number | undefined;
  /** Tries after the first one. Default: 2. */
  readonly maxRetries?: number | undefined;
  /** Replaces the global one, for proxies and tests. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/** The options of command lines, whose user sees the errors. */
interface CommandLineOptions {
  /** False: no retry if every endpoint is on loopback and refused the connection. */
  readonly retryRefused?: boolean | undefined;
  readonly hints?: ErrorHints | undefined;
}

/** Facts about the caller's configuration that error messages mention. */
export interface ErrorHints {
  /** Where the endpoint was configured, such as `HEDDLE_ENDPOINT`. */
  readonly endpointSource?: string | undefined;
  /** Replaces the cluster's message if a call without a key is refused. */
  readonly noKey?: string | undefined;
}

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, its retries and its stream. */
  readonly signal?: AbortSignal | undefined;
}

/** How to read a job, a model or the cluster. */
export interface GetOptions extends CallOptions {
  /** `stale` answers from the applied state of the master that answers. */
  readonly consistency?: "strong" | "stale" | undefined;
}

/** Options of a change. Its key makes a retry harmless. */
export interface ChangeOptions extends CallOptions {
  /** Absent: a random one for each call. */
  readonly idempotencyKey?: string | undefined;
  /** Apply only if the resource has this `etag`. */
  readonly ifMatch?: string | undefined;
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

/** One request; the segments of its path are encoded. */
export interface Request {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Below /api/v1. */
  readonly path: string;
  /** The path is below the endpoint itself, as /health is. */
  readonly isUnversioned?: boolean | undefined;
  readonly query?: Query | undefined;
  readonly body?: unknown;
  /** Sent in place of a body. */
  readonly form?: FormData | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Overrides the client's own. */
  readonly maxRetries?: number | undefined;
  /** Overrides the client's own, in milliseconds. */
  readonly timeout?: number | undefined;
  /** The request is idempotent, although its method and headers do not show it. */
  readonly isRepeatable?: boolean | undefined;
}

const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_RETRIES = 2;
/** How long a master may take to answer a read while other endpoints are known. */
const ASK_ANOTHER_MS = 10_000;

/** Sends requests and retries them. Every failure is a HeddleError. */
export class HttpTransport {
  readonly #options: HeddleOptions;
  readonly #bases: readonly string[];
  #base = 0;

  constructor(options: HeddleOptions) {
    this.#options = options;
    this.#bases = [options.endpoint].flat().map(baseOf);
    if (this.#bases.length === 0) throw new TypeError("`endpoint` names no address.");
  }

  get maxRetries(): number {
    return this.#options.maxRetries ?? DEFAULT_RETRIES;
  }

  /** Later requests go to the next known endpoint. */
  next(): void {
    this.#base = (this.#base + 1) % this.#bases.length;
  }

  /** The response's JSON; undefined if it has no body. */
  json<T>(request: Request): Promise<T> {
    return this.#send(request, async (response) => {
      const text = await wholeText(response, request.path);
      return (text === "" ? undefined : parsed(text, response)) as T;
    });
  }

  /** A change with an idempotency key. */
  change<T>(request: Request, options: ChangeOptions): Promise<T> {
    const { idempotencyKey = newKey(), ifMatch, signal } = options;
    const headers = {
      "idempotency-key": idempotencyKey,
      ...(ifMatch === undefined ? {} : { "if-match": ifMatch }),
    };
    return this.json<T>({ ...request, signal, headers });
  }

  /** Resolves with the response when its head is received; the caller reads the body. */
  open(request: Request): Promise<Response> {
    return this.#send(request, async (response) => {
      refusePage(response);
      return response;
    });
  }

  async #send<T>(request: Request, read: (response: Response) => Promise<T>): Promise<T> {
    const retries = request.maxRetries ?? this.maxRetries;
    const { method, headers: named } = request;
    const isIdempotent =
      method === "GET" || request.isRepeatable === true || named?.["idempotency-key"] !== undefined;
    let refusals = 0;
    for (let attempt = 1; ; attempt++) {
      // A first request to another endpoint is no retry.
      const isLast = attempt >= this.#bases.length;
      const outcome = await this.#try(request, read, isLast);
      if ("value" in outcome) return outcome.value;
      const { error, response } = outcome;
      if (wasRefusedOnLoopback(error)) refusals++;
      const isDown = this.#options.retryRefused === false && isLast && refusals === attempt;
      const isWorth: boolean = response
        ? isWorthRetrying({ status: response.status, headers: response.headers, isIdempotent })
        : (isIdempotent && error.retryable) || wasNeverSent(error);
      const waitMs = retryWaitMs(attempt, response?.headers, Math.random(), Date.now());
      const isSpent = attempt > retries && (response !== undefined || isLast);
      if (!isWorth || isSpent || isDown || waitMs === undefined) throw error;
      // Another master may be healthy.
      if (!response || response.status >= 500) this.next();
      // No wait before an endpoint that was not tried yet.
      if (response || isLast) await pause(waitMs, request.signal);
      if (request.signal?.aborted) throw aborted();
    }
  }

  async #try<T>(
    request: Request,
    read: (response: Response) => Promise<T>,
    isLast: boolean,
  ): Promise<{ value: T } | { error: HeddleError; response?: Response }> {
    const { signal, method } = request;
    const timeout = request.timeout ?? this.#options.timeout ?? DEFAULT_TIMEOUT_MS;
    const timeoutMs = isLast || method !== "GET" ? timeout : Math.min(timeout, ASK_ANOTHER_MS);
    const base = this.#bases[this.#base]!;
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), timeoutMs);
    try {
      const authorization = await this.#authorization();
      const signals = signal ? [signal, deadline.signal] : [deadline.signal];
      const end = AbortSignal.any(signals);
      const response = await this.#fetch(base, { ...request, signal: end }, authorization);
      if (response.ok) return { value: await read(response) };
      const error = errorOf(response, await wholeText(response, request.path));
      const isKeyless = error.status === 401 && authorization["authorization"] === undefined;
      return { error: isKeyless ? this.#withoutKey(error) : error, response };
    } catch (cause) {
      if (signal?.aborted) return { error: aborted() };
      if (!deadline.signal.aborted) {
        if (cause instanceof HeddleError) return { error: cause };
        return { error: unreachable(endpointOf(base), cause, this.#options.hints) };
      }
      const message = `${urlOf(base, request)} did not answer within ${timeoutMs / 1_000} s.`;
      const facts = { code: "deadline_exceeded", retryable: true, cause };
      return { error: new TimeoutError(message, facts) };
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * The check is needed since an error of `fetch` for an invalid header contains the key and looks
   * like a network error.
   */
  async #authorization(): Promise<Record<string, string>> {
    const { auth, auth_token } = this.#options;
    const token = (auth ? await askedKey(auth) : auth_token)?.trim();
    if (!token) return {};
    if (/^[\x21-\x7e]+$/.test(token)) return { authorization: `Bearer ${token}` };
    const message =
      "The API key has characters that are invalid in a key, such as a line break or a space. Copy the key again.";
    throw new AuthenticationError(message, { code: "invalid_api_key" });
  }

  #withoutKey(error: HeddleError): HeddleError {
    const message = this.#options.hints?.noKey;
    return message === undefined ? error : new AuthenticationError(message, error);
  }

  async #fetch(
    base: string,
    request: Request,
    authorization: Record<string, string>,
  ): Promise<Response> {
    const { method, query, body, form, headers, signal } = request;
    const { fetch = globalThis.fetch, project, role } = this.#options;
    return await fetch(`${urlOf(base, request)}${queryText(query)}`, {
      method,
      headers: {
        accept: "application/json",
        ...authorization,
        ...(project === undefined ? {} : { "x-heddle-project": project }),
        ...(role === undefined ? {} : { "x-heddle-role": role }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(form === undefined ? {} : { body: form }),
      ...(signal ? { signal } : {}),
    });
  }
}

async function askedKey(auth: NonNullable<HeddleOptions["auth"]>): Promise<string> {
  try {
    return await auth();
  } catch (cause) {
    const message = `\`auth\` gave no key: ${(cause as Error).message}`;
    throw new AuthenticationError(message, { code: "invalid_api_key", cause });
  }
}

/** The body; if it ends early, the error names the path. */
async function wholeText(response: Response, path: string): Promise<string> {
  try {
    return await response.text();
  } catch (cause) {
    const facts = { code: "unavailable", retryable: true, cause };
    throw new ConnectionError(`The answer to ${path} broke off.`, facts);
  }
}

function parsed(text: string, { url }: Response): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    const message = `${url} answered with something that is not JSON. Is it Heddle?`;
    throw new ServerError(message, { code: "unavailable", cause });
  }
}

/** The error of a call that the caller aborted. */
export function aborted(): AbortedError {
  return new AbortedError("Interrupted.", { code: "cancelled" });
}

/** An endpoint with the path of the API, which it may contain already. */
function baseOf(endpoint: string): string {
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new TypeError(
      `"${endpoint}" is not a valid endpoint. Give one like http://127.0.0.1:8080.`,
    );
  }
  return `${url.origin}${url.pathname.replace(/\/(api\/v1\/?)?$/, "")}/api/v1`;
}

function endpointOf(base: string): string {
  return base.replace(/\/api\/v1$/, "");
}

function urlOf(base: string, { path, isUnversioned }: Request): string {
  return (isUnversioned ? endpointOf(base) : base) + path;
}

function queryText(query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(given.map(textPair)).toString();
  return text === "" ? "" : `?${text}`;
}

function textPair([name, value]: readonly [string, unknown]): [string, string] {
  return [name, String(value)];
}

/** 128 random bits; `randomUUID` does not exist on pages without TLS. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function unreachable(endpoint: string, cause: unknown, hints: ErrorHints = {}): ConnectionError {
  const { code, message } = ((cause as Error).cause ?? cause) as {
    code?: string;
    message?: string;
  };
  const why = code ?? message ?? "";
  const { endpointSource: source } = hints;
  if (why === "bad port") {
    const from = source === undefined ? "" : ` (from ${source})`;
    const text = `${endpoint}${from} was not asked: browsers and fetch refuse to connect to this port, which the Fetch standard blocks. Have the master listen on another one.`;
    return new ConnectionError(text, { code: "unavailable", cause });
  }
  const hint = HINTS.find(([part]) => why.includes(part))?.[1];
  const from = source === undefined ? "" : `; the address is from ${source}`;
  const text = `No answer from ${endpoint} (${why}${from}).${hint ?? ""}`;
  return new ConnectionError(text, { code: "unavailable", retryable: hint === undefined, cause });
}

/** The cause behind some messages of the libraries below `fetch`; no retry helps there. */
const HINTS = [
  ["WRONG_VERSION_NUMBER", " It speaks no TLS: is its address http://, and not https://?"],
  ["HTTP/1.1 protocol", " It speaks no HTTP/1.1: is it a port of gRPC, for nodes alone?"],
  ["certificate has expired", " Its operator must renew it."],
  [
    "certificate",
    " Name its authority's PEM file in NODE_EXTRA_CA_CERTS, or in --ca of heddle's commands.",
  ],
] as const;
