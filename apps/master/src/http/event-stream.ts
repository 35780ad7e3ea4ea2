import type { ServerResponse } from "node:http";

/** How often a silent stream says that it lives, so that proxies keep it open. */
const HEARTBEAT_MS = 15_000;

/** Server-sent events written straight to the response: the path of every streamed token. */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #heartbeat: NodeJS.Timeout;

  /** Sends the head at once. `headers` come besides the content type and caching rules. */
  constructor(response: ServerResponse, headers: Record<string, string>) {
    this.#response = response;
    response.writeHead(200, {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      ...headers,
    });
    response.flushHeaders();
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS);
  }

  /** Writes finished event text. Returns false when the client lags: await `drained` before more. */
  write(text: string): boolean {
    return this.#response.write(text);
  }

  /** Resolves when the client has caught up or is gone. */
  drained(): Promise<void> {
    const response = this.#response;
    if (response.destroyed || !response.writableNeedDrain) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        response.off("drain", done);
        response.off("close", done);
        resolve();
      };
      response.on("drain", done);
      response.on("close", done);
    });
  }

  end(lastText = ""): void {
    clearInterval(this.#heartbeat);
    this.#response.end(lastText);
  }

  /** A client that does not read gets no heartbeats: they would only pile up. */
  #beat(): void {
    if (!this.#response.writableNeedDrain) this.#response.write(": heartbeat\n\n");
  }
}
