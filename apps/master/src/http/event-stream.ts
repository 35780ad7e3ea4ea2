import type { ServerResponse } from "node:http";
import { AppError } from "@heddle/base/errors";

/** How often a silent stream says that it lives, so that proxies keep it open. */
export const HEARTBEAT_MS = 15_000;

/** How long a client may take nothing of what waits for it, before its stream is cut. */
const READER_STALL_MS = 60_000;

/** Text that may wait for the end of this turn; more goes to the response, which tells when to stop. */
const MAX_PENDING_CHARACTERS = 16_384;

/** Responses that are streams of events, into which a comment may be written at any time. */
const opened = new WeakSet<ServerResponse>();

/** Whether the response has begun, as a stream of events. */
export function isEventStream(response: ServerResponse): boolean {
  return opened.has(response);
}

export interface EventStreamOptions {
  readonly heartbeatMs: number;
  /** How long a client may take nothing of it; 60,000 where absent. */
  readonly stallMs?: number | undefined;
  /** Called once, before the first byte; its headers come besides the content type and caching rules. */
  readonly onOpen: () => Record<string, string>;
}

/**
 * Server-sent events written straight to the response: the path of every streamed token. Nothing is
 * sent, and the response can still be used for something else, until the first event is written or
 * a heartbeat is due, whichever comes first.
 */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #onOpen: EventStreamOptions["onOpen"];
  readonly #heartbeat: NodeJS.Timeout;
  readonly #stallMs: number;
  #isOpen = false;
  /** What was written in this turn of the event loop: it leaves in one write, the head with it. */
  #pending = "";
  readonly #flush = (): void => {
    const text = this.#pending;
    this.#pending = "";
    if (text !== "" && !this.#response.writableEnded) this.#send(text);
  };

  constructor(response: ServerResponse, options: EventStreamOptions) {
    const { heartbeatMs, stallMs = READER_STALL_MS, onOpen } = options;
    this.#stallMs = stallMs;
    this.#response = response;
    this.#onOpen = onOpen;
    this.#heartbeat = setInterval(() => this.#beat(), heartbeatMs);
  }

  /** Whether the status is decided: from then on a failure can only be told as an event. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * One write for one chunk: Node would hand its length, its text and its end to the system as four
   * pieces, at several times the cost. What has no chunks, as for HTTP/1.0, it writes itself.
   */
  #send(text: string): void {
    const response = this.#response;
    if (!response.chunkedEncoding) {
      response.write(text);
      return;
    }
    response.chunkedEncoding = false;
    response.write(`${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`);
    response.chunkedEncoding = true;
  }

  /** Writes finished event text. Returns false when the client lags: await `drained` before more. */
  write(text: string): boolean {
    this.#open();
    if (this.#pending === "") process.nextTick(this.#flush);
    this.#pending += text;
    if (this.#pending.length >= MAX_PENDING_CHARACTERS) this.#flush();
    return !this.#response.writableNeedDrain;
  }

  /**
   * Resolves when the client has caught up or is gone. Rejects with `request_timeout` when it has
   * taken nothing for as long as it may: what is made for it would be kept for nobody. Node's time
   * limit of a socket tells a slow reader, of whom some bytes go, from one that does not read.
   */
  drained(): Promise<void> {
    const response = this.#response;
    if (response.destroyed || !response.writableNeedDrain) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const settle = (finish: () => void): void => {
        response.setTimeout(0);
        response.off("timeout", onStall).off("drain", onDrain).off("close", onDrain);
        finish();
      };
      const onDrain = (): void => settle(resolve);
      const onStall = (): void => settle(() => reject(this.#stalled()));
      response.on("timeout", onStall).on("drain", onDrain).on("close", onDrain);
      response.setTimeout(this.#stallMs);
    });
  }

  #stalled(): AppError {
    const message = `The client took nothing of the stream for ${this.#stallMs / 1000} s, so it was cut. Read the answer as it comes, or ask for it without a stream.`;
    return new AppError("request_timeout", message);
  }

  end(lastText = ""): void {
    this.#open();
    clearInterval(this.#heartbeat);
    this.#response.end(this.#pending + lastText);
    this.#pending = "";
    // Without a listener Node closes the connection: the rest is not kept for one that never reads.
    if (this.#response.writableLength > 0) this.#response.setTimeout(this.#stallMs);
  }

  /** Leaves the response, of which nothing has been sent, to another answer. */
  abandon(): void {
    clearInterval(this.#heartbeat);
  }

  #open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    opened.add(this.#response);
    this.#response.writeHead(200, {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      ...this.#onOpen(),
    });
  }

  /** A client that does not read gets no heartbeats: they would only pile up. */
  #beat(): void {
    if (!this.#response.writableNeedDrain) this.write(": heartbeat\n\n");
  }
}
