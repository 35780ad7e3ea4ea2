import type { LookupFunction } from "node:net";
import type { Readable } from "node:stream";
import { Agent, type Dispatcher } from "undici";
import { broken, garbage, httpFault } from "./upstream-fault.ts";
import type { UpstreamRequest } from "./upstream-request.ts";

/** The most bytes of an error's body. */
const MAX_ERROR_BYTES = 64 * 1024;

export interface ConnectionOptions {
  readonly baseUrl: URL;
  readonly apiKey: string | undefined;
  readonly connectTimeoutMs: number;
  readonly maxConnections: number;
  /** What the probe asks. */
  readonly probedPath: UpstreamRequest["path"];
  readonly lookup: LookupFunction | undefined;
}

/** The connections to one upstream. The caller watches over time by the signal. */
export class UpstreamConnection {
  readonly apiKey: string | undefined;
  readonly #agent: Agent;
  readonly #origin: string;
  readonly #path: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #probedPath: UpstreamRequest["path"];

  constructor(options: ConnectionOptions) {
    const { baseUrl, apiKey, connectTimeoutMs: timeout, maxConnections, lookup } = options;
    this.apiKey = apiKey;
    this.#origin = baseUrl.origin;
    this.#probedPath = options.probedPath;
    this.#path = baseUrl.pathname.replace(/\/+$/, "");
    this.#headers = {
      "content-type": "application/json",
      "user-agent": "heddle",
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
    };
    this.#agent = new Agent({
      connections: maxConnections,
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: { timeout, ...(lookup && { lookup }) },
    });
  }

  /** The body of a successful answer. Throws an UpstreamFault, or the signal's reason. */
  async post({ path, body }: UpstreamRequest, signal: AbortSignal): Promise<Readable> {
    const accept = path === "/embeddings" ? "application/json" : "text/event-stream";
    const answer = await this.#request(path, JSON.stringify(body), accept, signal);
    const { statusCode: status, headers } = answer;
    if (status !== 200) {
      const text = await readStart(answer.body);
      const isProbed = path === this.#probedPath;
      const { apiKey } = this;
      throw httpFault({ status, text, retryAfterMs: retryAfterMs(headers), isProbed, apiKey });
    }
    const type = String(headers["content-type"] ?? "");
    if (type.startsWith(accept)) return answer.body;
    answer.body.on("error", () => undefined).destroy();
    throw garbage(`${type === "" ? "no content type" : type.slice(0, 80)} in place of ${accept}`);
  }

  async #request(
    path: string,
    body: string,
    accept: string,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    try {
      return await this.#agent.request({
        origin: this.#origin,
        path: this.#path + path,
        method: "POST",
        headers: { ...this.#headers, accept },
        body,
        signal,
      });
    } catch (error) {
      signal.throwIfAborted();
      throw broken(`cannot be reached (${reasonOf(error)})`, error);
    }
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

/** An error's code says more than its message, and holds no address. */
function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code ?? message;
}

async function readStart(body: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes >= MAX_ERROR_BYTES) break;
    }
  } catch {
    // The part that was received is the message.
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** In milliseconds, in seconds, or as a date. */
function retryAfterMs(headers: Readonly<Record<string, unknown>>): number | undefined {
  const exact = Number(headers["retry-after-ms"] ?? Number.NaN);
  if (exact >= 0) return exact;
  const text = headers["retry-after"];
  if (typeof text !== "string") return undefined;
  const seconds = Number(text);
  if (seconds >= 0) return seconds * 1000;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - Date.now());
}
