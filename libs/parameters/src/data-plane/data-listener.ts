import { timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { chmodSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { AppError, toAppError } from "@heddle/base/errors";
import {
  errorFrame,
  HELLO_BYTES,
  headFrame,
  MAX_REQUEST_BYTES,
  SLICE_BYTES,
  SOCKET_OPTIONS,
  tokenOfHello,
} from "./data-frames.ts";

/** The answer to a request; `release` is called when the last byte has left, or never will. */
export interface DataAnswer {
  readonly version: number;
  readonly bytes: number;
  /** Bytes of that length together; they must not change before `release`. */
  readonly pieces: Iterable<Uint8Array>;
  readonly release?: () => void;
}

export interface DataListenerOptions {
  /** A connection with another token is refused. */
  readonly token: Uint8Array;
  readonly answer: (request: object, signal: AbortSignal) => Promise<DataAnswer>;
  /** Called for each connection that is closed for its hello or a request. */
  readonly onRefused?: ((reason: "unauthenticated" | "invalid") => void) | undefined;
}

/** Connections of all sockets of one listener. */
const MAX_CONNECTIONS = 512;
/** A connection without a hello by then is closed. */
const HELLO_MS = 5_000;
/** A receiver that takes nothing for this time is disconnected. */
const STALL_MS = 20_000;

/** Sends data to each peer that connects with the job's token. */
export class DataListener {
  readonly #options: DataListenerOptions;
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();
  #token: Uint8Array;
  #unauthenticated = 0;

  constructor(options: DataListenerOptions) {
    this.#options = options;
    this.#token = options.token;
  }

  /** Connections that were closed for a missing or wrong token. */
  get unauthenticated(): number {
    return this.#unauthenticated;
  }

  /** Returns `tcp:HOST:PORT`, with a port that the system chose. */
  async listenTcp(host: string): Promise<string> {
    const server = await this.#listen({ host, port: 0 });
    return `tcp:${host}:${(server.address() as AddressInfo).port}`;
  }

  /** Returns `unix:PATH`; a stale socket file is replaced. */
  async listenUnix(path: string): Promise<string> {
    rmSync(path, { force: true });
    await this.#listen({ path });
    // Trainers may run as other users; each must show the job's token.
    chmodSync(path, 0o666);
    return `unix:${path}`;
  }

  /** A later attempt's token; connections with the previous one are closed. */
  changeToken(token: Uint8Array): void {
    this.#token = token;
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  async #listen(where: { path: string } | { host: string; port: number }): Promise<Server> {
    const server = createServer(SOCKET_OPTIONS, (socket) => this.#serve(socket));
    server.maxConnections = MAX_CONNECTIONS;
    server.listen(where);
    await once(server, "listening");
    this.#servers.push(server);
    return server;
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    const gone = new AbortController();
    socket.on("close", () => {
      this.#sockets.delete(socket);
      gone.abort(new AppError("cancelled", "the receiver closed the connection"));
    });
    // Only the close that follows an error matters.
    socket.on("error", () => socket.destroy());
    socket.on("timeout", () => socket.destroy());
    void this.#converse(socket, gone.signal).catch(() => socket.destroy());
  }

  async #converse(socket: Socket, signal: AbortSignal): Promise<void> {
    const reader = new FrameReader(socket);
    const late = setTimeout(() => socket.destroy(), HELLO_MS);
    const hello = await reader.take(HELLO_BYTES);
    clearTimeout(late);
    const token = hello && tokenOfHello(hello);
    if (!token || token.length !== this.#token.length || !timingSafeEqual(token, this.#token)) {
      this.#unauthenticated++;
      this.#options.onRefused?.("unauthenticated");
      socket.destroy();
      return;
    }
    for (;;) {
      const length = (await reader.take(4))?.readUInt32LE();
      if (length === undefined) break;
      const body = length > MAX_REQUEST_BYTES ? undefined : await reader.take(length);
      const request = body && requestOf(body);
      if (!request) {
        if (body || length > MAX_REQUEST_BYTES) this.#options.onRefused?.("invalid");
        break;
      }
      await this.#reply(socket, request, signal);
    }
    socket.destroy();
  }

  async #reply(socket: Socket, request: object, signal: AbortSignal): Promise<void> {
    let answer: DataAnswer;
    try {
      answer = await this.#options.answer(request, signal);
    } catch (error) {
      socket.write(errorFrame(toAppError(error)));
      return;
    }
    try {
      socket.write(headFrame(answer));
      await writeAll(socket, answer.pieces);
    } finally {
      answer.release?.();
    }
  }
}

/** Undefined where the body is not a JSON object: then the connection cannot be trusted. */
function requestOf(body: Buffer): object | undefined {
  try {
    const request: unknown = JSON.parse(body.toString());
    return typeof request === "object" && request !== null ? request : undefined;
  } catch {
    return undefined;
  }
}

/** Resolves when the last byte has been handed to the system. */
async function writeAll(socket: Socket, pieces: Iterable<Uint8Array>): Promise<void> {
  socket.setTimeout(STALL_MS);
  let last: Promise<void> | undefined;
  for (const slice of slices(pieces)) {
    if (socket.destroyed) break;
    const sent = Promise.withResolvers<void>();
    const room = socket.write(slice, (error) => (error ? sent.reject(error) : sent.resolve()));
    sent.promise.catch(() => undefined);
    last = sent.promise;
    if (!room) await last;
  }
  await last;
  socket.setTimeout(0);
}

/**
 * Joins short pieces and cuts long ones, so that writes are few and the progress of each is seen.
 */
function* slices(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
  let small: Uint8Array[] = [];
  let bytes = 0;
  for (const piece of pieces) {
    if (piece.length < GATHERED_BYTES) {
      small.push(piece);
      bytes += piece.length;
      if (bytes < SLICE_BYTES) continue;
    }
    if (small.length > 0) yield Buffer.concat(small);
    if (piece.length >= GATHERED_BYTES) {
      for (let at = 0; at < piece.length; at += WRITE_BYTES) {
        yield piece.subarray(at, at + WRITE_BYTES);
      }
    }
    small = [];
    bytes = 0;
  }
  if (small.length > 0) yield Buffer.concat(small);
}

/** The system takes about 200 KiB at once, whatever a write has; each write has a cost besides. */
const WRITE_BYTES = 4 * 1024 * 1024;
/** Shorter pieces are copied together. */
const GATHERED_BYTES = 32 * 1024;

/** Reads frames of known length; few and small ones. */
class FrameReader {
  readonly #socket: Socket;
  #wake: () => void = () => undefined;
  #ended = false;

  constructor(socket: Socket) {
    this.#socket = socket;
    // A socket reports the end of its peer only to a reader, so this always reads.
    socket.on("readable", () => {
      if (socket.readableLength === 0) socket.read(0);
      this.#wake();
    });
    const end = () => {
      this.#ended = true;
      this.#wake();
      socket.destroy();
    };
    socket.on("end", end);
    socket.on("close", end);
  }

  /** Undefined where the connection ended before. */
  async take(bytes: number): Promise<Buffer | undefined> {
    for (;;) {
      const frame = this.#socket.read(bytes) as Buffer | null;
      if (frame) return frame.length === bytes ? frame : undefined;
      if (this.#ended) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
