import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { StepQueue } from "@heddle/base/async/step-queue";
import { AppError } from "@heddle/base/errors";
import type { Registry } from "prom-client";
import { type Hides, MetricsText } from "./metrics-text.ts";

const MAX_CONNECTIONS = 32;
const REQUEST_TIMEOUT_MS = 5_000;
const READABLE = new Set(["GET", "HEAD"]);

export interface MetricsPlace {
  /** Every address where it is absent. */
  readonly host?: string | undefined;
  readonly port: number;
  /** The flag of the port, for errors. */
  readonly flag: string;
}

export interface MetricsOptions {
  /** Series that are left out. */
  readonly hides?: Hides;
  /** Adds `GET /readyz`. */
  readonly isReady?: () => boolean;
}

/** `GET /metrics` and `GET /healthz` of a process that serves no other HTTP there. */
export class MetricsEndpoint {
  readonly #server: Server;
  readonly #text: MetricsText;
  readonly #isReady: (() => boolean) | undefined;

  private constructor(registry: Registry, { hides, isReady }: MetricsOptions) {
    const queue = new StepQueue("reads of metrics");
    this.#text = new MetricsText(registry, queue, hides && (() => hides));
    this.#isReady = isReady;
    this.#server = createServer(
      { requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS },
      (request, response) => void this.#answer(request, response),
    );
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** Rejects with an AppError `unavailable` where the port is in use. */
  static async listen(
    { host, port, flag }: MetricsPlace,
    registry: Registry,
    options: MetricsOptions = {},
  ): Promise<MetricsEndpoint> {
    const endpoint = new MetricsEndpoint(registry, options);
    try {
      await once(endpoint.#server.listen(port, host), "listening");
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== "EADDRINUSE") throw cause;
      const address = host === undefined ? `port ${port}` : `address ${host}:${port}`;
      const message = `the ${address} is in use. Stop what listens there, or choose another ${flag}.`;
      throw new AppError("unavailable", message, { cause });
    }
    return endpoint;
  }

  /** The address of `/metrics`. */
  get url(): string {
    const { address, family, port } = this.#server.address() as AddressInfo;
    return `http://${family === "IPv6" ? `[${address}]` : address}:${port}/metrics`;
  }

  async close(): Promise<void> {
    const done = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    await done;
  }

  async #answer({ method = "", url }: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = url?.split("?")[0];
    if (!READABLE.has(method)) return text(response, 405, this.#paths);
    if (path === "/healthz") return text(response, 200, "ok\n");
    if (path === "/readyz" && this.#isReady) {
      if (this.#isReady()) return text(response, 200, "ok\n");
      return text(response, 503, "not ready\n");
    }
    if (path !== "/metrics") return text(response, 404, this.#paths);
    try {
      text(response, 200, Buffer.concat(await this.#text.pieces()), this.#text.contentType);
    } catch (error) {
      text(response, 500, `The metrics cannot be read: ${String(error)}\n`);
    }
  }

  get #paths(): string {
    const more = this.#isReady ? ", GET /readyz" : "";
    return `This port serves GET /metrics${more} and GET /healthz.\n`;
  }
}

function text(
  response: ServerResponse,
  status: number,
  body: string | Buffer,
  type = "text/plain",
): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(body) });
  response.end(body);
}
