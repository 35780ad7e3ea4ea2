import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { HostPolicy } from "./host-policy.ts";
import { PermanentFault, reasonOf, SourceFault, UnreachableFault } from "./source-fault.ts";

/** How long a pull waits, and how often it tries. */
export interface PullLimits {
  /** For the name to resolve, the connection and TLS together. */
  readonly connectTimeoutMs: number;
  /** Without a byte from the other side. */
  readonly idleTimeoutMs: number;
  /** Tries of one source that do not get any further. */
  readonly maxAttempts: number;
  readonly retryBaseMs: number;
  readonly retryMaxMs: number;
  /** The largest file that is pulled where its size is not declared. */
  readonly maxBytes: number;
  /** For the whole pull, over all sources. */
  readonly maxPullMs: number;
  /** The progress is kept after this many bytes of a file that is read without being stored. */
  readonly keepAfterBytes: number;
}

/** An offline machine loses `connectTimeoutMs` on each remote source, so that is short. */
export const DEFAULT_PULL_LIMITS: PullLimits = {
  connectTimeoutMs: 2_500,
  idleTimeoutMs: 30_000,
  maxAttempts: 4,
  retryBaseMs: 500,
  retryMaxMs: 8_000,
  maxBytes: 512 * 2 ** 30,
  maxPullMs: 24 * 60 * 60 * 1000,
  keepAfterBytes: 64 * 2 ** 20,
};

const MAX_REDIRECTS = 5;
/** Manifests, tokens and error pages. */
const MAX_TEXT_BYTES = 4 * 1024 * 1024;

/** What every request of one pull shares. */
export interface RequestContext {
  readonly hosts: HostPolicy;
  readonly limits: PullLimits;
  readonly signal: AbortSignal;
}

/**
 * A GET whose every redirect is checked against the host policy, and whose `authorization` header
 * goes to the first origin only. Resolves with the final response, whatever its status, with its
 * body unread; the caller reads or destroys it.
 */
export async function guardedGet(
  url: URL,
  headers: Readonly<Record<string, string>>,
  context: RequestContext,
): Promise<IncomingMessage> {
  let at = url;
  for (let hop = 0; hop <= MAX_REDIRECTS; hop++) {
    context.hosts.check(at);
    const { authorization: _, ...others } = headers;
    const response = await get(at, at.origin === url.origin ? headers : others, context);
    const { location } = response.headers;
    const status = response.statusCode ?? 0;
    if (status < 300 || status >= 400 || !location) return response;
    response.destroy();
    if (!URL.canParse(location, at.href)) throw new PermanentFault(`redirects to ${location}`);
    at = new URL(location, at);
  }
  throw new PermanentFault(`redirects more than ${MAX_REDIRECTS} times`);
}

/** The body as text; throws where it is larger than a manifest may be. */
export async function readText(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_TEXT_BYTES) throw new PermanentFault("answers with too large a document");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** The fault of a status other than success. */
export function statusFault(response: IncomingMessage, url: URL): SourceFault {
  const status = response.statusCode ?? 0;
  const message = `${url.host} answers ${status} ${response.statusMessage ?? ""}`.trim();
  const transient = status === 408 || status === 425 || status === 429 || status >= 500;
  if (transient) return new SourceFault(message);
  if (status === 401 || status === 403) {
    return new PermanentFault(`${message}; access needs a token (HF_TOKEN for the hub)`);
  }
  return new PermanentFault(message);
}

function get(
  url: URL,
  headers: Readonly<Record<string, string>>,
  context: RequestContext,
): Promise<IncomingMessage> {
  const { hosts, limits, signal } = context;
  const secure = url.protocol === "https:";
  return new Promise((resolve, reject) => {
    let connected = false;
    let answer: IncomingMessage | undefined;
    const request = (secure ? httpsRequest : httpRequest)(url, {
      headers: { "user-agent": "heddle", "accept-encoding": "identity", ...headers },
      lookup: hosts.lookup,
      agent: false,
      signal,
    });
    const fail = (message: string) =>
      request.destroy(new UnreachableFault(`${url.host} ${message}`));
    const connectTimer = setTimeout(
      () => fail(`cannot be reached within ${limits.connectTimeoutMs} ms`),
      limits.connectTimeoutMs,
    );
    request.once("close", () => clearTimeout(connectTimer));
    request.once("socket", (socket) => {
      socket.once(secure ? "secureConnect" : "connect", () => {
        connected = true;
        clearTimeout(connectTimer);
        request.setTimeout(limits.idleTimeoutMs, () => {
          const fault = new SourceFault(`${url.host} was silent for ${limits.idleTimeoutMs} ms`);
          (answer ?? request).destroy(fault);
        });
      });
    });
    request.once("response", (response) => {
      answer = response;
      resolve(response);
    });
    request.once("error", (error) => reject(requestFault(error, url, connected)));
    request.end();
  });
}

function requestFault(error: Error, url: URL, connected: boolean): Error {
  if (error instanceof SourceFault || error.name === "AbortError") return error;
  const reason = `${url.host}: ${reasonOf(error)}`;
  return connected
    ? new SourceFault(reason, { cause: error })
    : new UnreachableFault(reason, { cause: error });
}
