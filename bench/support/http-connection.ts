import { connect, type Socket } from "node:net";

/** Where a server listens, without its path. */
export interface Origin {
  readonly host: string;
  readonly port: number;
}

/** Called as a response comes in; `end` or `fail` is the last call and comes exactly once. */
interface ResponseSink {
  /** A piece of the body; valid only during the call. */
  body(bytes: Buffer): void;
  end(status: number): void;
  fail(error: Error): void;
}

export interface GetRequest {
  readonly origin: Origin;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

interface PostOptions extends GetRequest {
  readonly body: string;
}

const headEnd = Buffer.from("\r\n\r\n");
const lineEnd = Buffer.from("\r\n");

/** The bytes of a POST request with a JSON body. */
export function postBytes({ body, ...options }: PostOptions): Buffer {
  const length = String(Buffer.byteLength(body));
  const headers = { "content-type": "application/json", "content-length": length };
  const head = headText("POST", { ...options, headers: { ...headers, ...options.headers } });
  return Buffer.from(head + body);
}

export function getBytes(options: GetRequest): Buffer {
  return Buffer.from(headText("GET", options));
}

function headText(method: string, { origin, path, headers }: GetRequest): string {
  const all = { host: `${origin.host}:${origin.port}`, ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/**
 * One keep-alive connection that carries one request at a time. It reads just enough of HTTP/1.1
 * (content-length, chunked, close) for a load generator that must cost far less than the server.
 */
export class HttpConnection {
  readonly #origin: Origin;
  #socket: Socket | undefined;
  #sink: ResponseSink | undefined;
  #pending: Buffer | undefined;
  #status = 0;
  /** Bytes of the body, or of the chunk, still to come; -1 while a head is read. */
  #remaining = -1;
  #chunked = false;
  #untilClose = false;

  constructor(origin: Origin) {
    this.#origin = origin;
  }

  /** The connection must be free: the last response's `end` or `fail` has been called. */
  send(request: Buffer, sink: ResponseSink): void {
    if (this.#sink) throw new Error("a request is already under way on this connection");
    this.#sink = sink;
    this.#remaining = -1;
    this.#chunked = false;
    this.#untilClose = false;
    this.#socket ??= this.#open();
    this.#socket.write(request);
  }

  /** Drops the connection, as a client that hangs up does; `fail` is not called. */
  close(): void {
    this.#sink = undefined;
    this.#drop();
  }

  #open(): Socket {
    const socket = connect({ ...this.#origin, noDelay: true });
    const own = () => socket === this.#socket;
    socket.on("data", (bytes: Buffer) => own() && this.#onData(bytes));
    socket.on("error", (error) => own() && this.#onClose(error));
    socket.on("close", () => own() && this.#onClose(new Error("the server closed the connection")));
    return socket;
  }

  #drop(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#pending = undefined;
    socket?.destroy();
  }

  #onClose(error: Error): void {
    const sink = this.#sink;
    this.#sink = undefined;
    this.#drop();
    if (this.#untilClose) sink?.end(this.#status);
    else sink?.fail(error);
  }

  #onData(incoming: Buffer): void {
    let bytes = this.#pending ? Buffer.concat([this.#pending, incoming]) : incoming;
    this.#pending = undefined;
    while (bytes.length > 0 && this.#sink) {
      const used = this.#remaining < 0 ? this.#takeHead(bytes) : this.#takeBody(bytes);
      if (used === 0) {
        this.#pending = bytes;
        return;
      }
      bytes = bytes.subarray(used);
    }
  }

  /** Reads the head, or a chunk's size line, and returns the bytes used; 0 for too few. */
  #takeHead(bytes: Buffer): number {
    if (this.#chunked) return this.#takeChunkSize(bytes);
    const end = bytes.indexOf(headEnd);
    if (end < 0) return 0;
    const head = bytes.toString("latin1", 0, end).toLowerCase();
    this.#status = Number(head.slice(9, 12));
    this.#chunked = head.includes("\r\ntransfer-encoding: chunked");
    const length = /\r\ncontent-length: *(\d+)/.exec(head);
    if (!this.#chunked) {
      this.#untilClose = length === null;
      this.#remaining = length ? Number(length[1]) : Number.POSITIVE_INFINITY;
      if (this.#remaining === 0) this.#finish();
    }
    return end + headEnd.length;
  }

  #takeChunkSize(bytes: Buffer): number {
    const end = bytes.indexOf(lineEnd);
    if (end < 0) return 0;
    const size = Number.parseInt(bytes.toString("latin1", 0, end), 16);
    if (size > 0) {
      // The chunk's own line end is taken with it.
      this.#remaining = size + lineEnd.length;
      return end + lineEnd.length;
    }
    if (bytes.length < end + 2 * lineEnd.length) return 0;
    this.#finish();
    return end + 2 * lineEnd.length;
  }

  #takeBody(bytes: Buffer): number {
    const used = Math.min(this.#remaining, bytes.length);
    const left = this.#remaining - used;
    const data = this.#chunked ? Math.min(used, this.#remaining - lineEnd.length) : used;
    this.#remaining = left;
    if (data > 0) this.#sink?.body(bytes.subarray(0, data));
    if (left > 0) return used;
    if (this.#chunked) this.#remaining = -1;
    else this.#finish();
    return used;
  }

  #finish(): void {
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.end(this.#status);
  }
}
