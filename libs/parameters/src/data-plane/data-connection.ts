import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { AppError, toAppError } from "@heddle/base/errors";
import {
  type DataHead,
  dataHelloFrame,
  HEAD_BYTES,
  parseHead,
  receivedError,
  requestFrame,
  SLICE_BYTES,
  SOCKET_OPTIONS,
} from "./data-frames.ts";

/** The destination of an answer's bytes, which are not copied on the way. */
export interface DataSink {
  /** Checks the head before any byte; a throw ends the connection and rejects the request. */
  begin(head: DataHead): void;
  /** The place of the next bytes; they may be fewer than it holds. */
  space(): Uint8Array;
  /** `bytes` bytes have arrived. A throw ends the connection and rejects the request. */
  filled(bytes: number): void;
}

/** An answer that stalls for this time is broken. */
const STALL_MS = 20_000;
const CONNECT_MS = 5_000;

/** The receiver's end of a data connection; one request at a time. */
export class DataConnection {
  readonly #socket: Socket;
  readonly #peer: string;
  readonly #head: Buffer;
  #answer: Answer | undefined;
  #failed: AppError | undefined;

  private constructor(socket: Socket, peer: string, head: Buffer) {
    this.#socket = socket;
    this.#peer = peer;
    this.#head = head;
  }

  /** Opens one to `unix:PATH` or `tcp:HOST:PORT`. Rejects with an AppError `unavailable`. */
  static async open(
    target: string,
    token: Uint8Array,
    signal: AbortSignal,
  ): Promise<DataConnection> {
    // The socket asks the connection for its buffers, and needs the connection before the first
    // read.
    const box: { connection?: DataConnection } = {};
    // Node asks for the first buffer before there is a connection.
    const head = Buffer.alloc(HEAD_BYTES);
    const onread = {
      buffer: () => box.connection?.space() ?? head,
      callback: (bytes: number) => {
        box.connection?.read(bytes);
        return true;
      },
    };
    const socket = connect({ ...endpoint(target), ...SOCKET_OPTIONS, onread });
    const connection = new DataConnection(socket, target, head);
    box.connection = connection;
    socket.on("error", (cause) => connection.#end(cause.message, cause));
    socket.on("close", () => connection.#end("it was closed"));
    socket.on("timeout", () =>
      socket.destroy(new Error(`no byte was received for ${STALL_MS} ms`)),
    );
    try {
      await once(socket, "connect", {
        signal: AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)]),
      });
    } catch (cause) {
      socket.destroy();
      throw new AppError("unavailable", `cannot connect to ${target}: ${reason(cause)}`, { cause });
    }
    socket.write(dataHelloFrame(token));
    return connection;
  }

  get open(): boolean {
    return this.#failed === undefined;
  }

  /**
   * Sends a request, and passes the answer's bytes to the sink. An abort or a failing sink ends the
   * connection.
   */
  request(request: object, sink: DataSink, signal: AbortSignal): Promise<DataHead> {
    if (this.#failed) return Promise.reject(this.#failed);
    if (this.#answer) throw new Error("a data connection has one request at a time");
    const { promise, resolve, reject } = Promise.withResolvers<DataHead>();
    const onAbort = () => this.close(toAppError(signal.reason));
    this.#answer = { sink, resolve, reject, got: 0, head: undefined };
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    this.#socket.write(requestFrame(request));
    return promise.finally(() => signal.removeEventListener("abort", onAbort));
  }

  close(error = new AppError("cancelled", `the connection to ${this.#peer} was closed`)): void {
    this.#failed ??= error;
    this.#socket.destroy();
    this.#settle((answer) => answer.reject(this.#failed));
  }

  /** The place of the next read: the head, an error's text, or the sink's own memory. */
  space(): Uint8Array {
    const answer = this.#answer;
    if (!answer?.head) return this.#head.subarray(answer?.got ?? 0);
    if (answer.text) return answer.text.subarray(answer.got);
    const left = answer.head.bytes - answer.got;
    const space = answer.sink.space();
    return space.subarray(0, Math.min(left, SLICE_BYTES));
  }

  /** `bytes` bytes are where `space` pointed. */
  read(bytes: number): void {
    const answer = this.#answer;
    if (!answer) {
      this.close(new AppError("server_error", `${this.#peer} sent what none asked`));
      return;
    }
    try {
      this.#take(answer, bytes);
    } catch (error) {
      this.close(toAppError(error));
    }
  }

  #take(answer: Answer, bytes: number): void {
    answer.got += bytes;
    if (answer.head) {
      if (!answer.text) answer.sink.filled(bytes);
    } else {
      if (answer.got < HEAD_BYTES) return;
      const head = parseHead(this.#head);
      if (head.failed) answer.text = Buffer.alloc(head.bytes);
      else answer.sink.begin(head);
      answer.head = head;
      answer.got = 0;
      this.#socket.setTimeout(STALL_MS);
    }
    if (answer.got < answer.head.bytes) return;
    this.#socket.setTimeout(0);
    const { head, text } = answer;
    this.#settle(() =>
      text ? answer.reject(receivedError(text, this.#peer)) : answer.resolve(head),
    );
  }

  #end(why: string, cause?: unknown): void {
    // A server that refuses the token closes without an answer, which may arrive as a reset.
    const hint = this.#socket.bytesRead === 0 ? "; was the job token another?" : "";
    const message = `the data connection to ${this.#peer} broke: ${why}${hint}`;
    this.close(new AppError("unavailable", message, { cause }));
  }

  #settle(how: (answer: Answer) => void): void {
    const answer = this.#answer;
    this.#answer = undefined;
    if (answer) how(answer);
  }
}

interface Answer {
  readonly sink: DataSink;
  readonly resolve: (head: DataHead) => void;
  readonly reject: (error: unknown) => void;
  /** Bytes of the head, then of its body. */
  got: number;
  head: DataHead | undefined;
  /** The text of an error. */
  text?: Buffer;
}

function endpoint(target: string): { path: string } | { host: string; port: number } {
  const path = /^unix:(.+)$/.exec(target)?.[1];
  if (path) return { path };
  const match = /^tcp:\[?([^\]]+)\]?:(\d+)$/.exec(target);
  if (match) return { host: match[1] ?? "", port: Number(match[2]) };
  throw new AppError("invalid_value", `${target} is neither unix:PATH nor tcp:HOST:PORT`);
}

function reason(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error ? cause.cause.message : cause.message;
}
