import type { ServerResponse } from "node:http";
import { AppError } from "@heddle/base/errors";
import { READER_STALL_MS } from "../config/config.ts";

/**
 * Bound on text that waits for the end of this turn; beyond it the response applies back-pressure.
 */
const MAX_PENDING_CHARACTERS = 16_384;

const COMMENT = ": heartbeat\n\n";

/** Responses that are event streams, into which a comment may be written at any time. */
const opened = new WeakSet<ServerResponse>();

/** Whether the response has started as an event stream. */
export function isEventStream(response: ServerResponse): boolean {
  return opened.has(response);
}

export interface EventStreamOptions {
  readonly heartbeatMs: number;
  /** The text of a heartbeat; a comment by default. */
  readonly heartbeat?: string | undefined;
  /** How long a client may read nothing; 60,000 by default. */
  readonly stallMs?: number | undefined;
  /** Called once, before the first byte; returns further headers. */
  readonly onOpen: () => Record<string, string>;
}

/**
 * Server-sent events written directly to the response: the path of every streamed token. Nothing is
 * sent, and the response stays usable for another answer, until the first event or heartbeat.
 */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #onOpen: EventStreamOptions["onOpen"];
  readonly #heartbeat: NodeJS.Timeout;
  #progress: NodeJS.Timeout | undefined;
  readonly #stallMs: number;
  #isOpen = false;
  /** Text of this turn of the event loop: it is sent in one write, together with the head. */
  #pending = "";
  readonly #flush = (): void => {
    const text = this.#pending;
    this.#pending = "";
    if (text !== "" && !this.#response.writableEnded) this.#send(text);
  };

  constructor(response: ServerResponse, options: EventStreamOptions) {
    const { heartbeatMs, heartbeat = COMMENT, stallMs = READER_STALL_MS, onOpen } = options;
    this.#stallMs = stallMs;
    this.#response = response;
    this.#onOpen = onOpen;
    this.#heartbeat = setInterval(() => this.#beat(heartbeat), heartbeatMs);
  }

  /** Writes the text as a comment at every interval, until there is none. */
  comment(everyMs: number, textOf: () => string | undefined): void {
    clearInterval(this.#progress);
    this.#progress = setInterval(() => {
      const text = textOf();
      if (text === undefined) clearInterval(this.#progress);
      else this.#beat(`: ${text}\n\n`);
    }, everyMs);
  }

  /** Whether the status is sent: from then on a failure can only be an event. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * One write per chunk: Node would write its length, text and end as four pieces, at several times
   * the cost. Unchunked responses, as for HTTP/1.0, are left to Node.
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

  /** Writes complete event text. Returns false under back-pressure: await `drained` before more. */
  write(text: string): boolean {
    this.#open();
    if (this.#pending === "") process.nextTick(this.#flush);
    this.#pending += text;
    if (this.#pending.length >= MAX_PENDING_CHARACTERS) this.#flush();
    return !this.#response.writableNeedDrain;
  }

  /**
   * Resolves when the client has caught up or is gone. Rejects with `request_timeout` when it has
   * read nothing for the stall limit. Node's socket timeout distinguishes a slow reader from one
   * that does not read.
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
    this.abandon();
    this.#response.end(this.#pending + lastText);
    this.#pending = "";
    // Without a listener Node closes the connection, which drops the pending data.
    if (this.#response.writableLength > 0) this.#response.setTimeout(this.#stallMs);
  }

  /** Leaves the response, of which nothing was sent, to another answer. */
  abandon(): void {
    clearInterval(this.#heartbeat);
    clearInterval(this.#progress);
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

  /** A client that does not read gets no heartbeats, which would only accumulate. */
  #beat(text: string): void {
    if (!this.#response.writableNeedDrain) this.write(text);
  }
}
