import type { RequestListener, Server } from "node:http";
import {
  constants,
  createSecureServer,
  type Http2ServerRequest,
  Http2ServerResponse,
  type ServerHttp2Session,
} from "node:http2";
import type { TLSSocket } from "node:tls";
import { AppError } from "@heddle/base/errors";
import type { CertificateFiles, FixedTimes } from "../../config/config.ts";
import { errorReply } from "../error-reply.ts";
import { requestIdOf } from "../request-id.ts";
import { mayTakeLong } from "./broken-requests.ts";
import { MIN_TLS, readServerCertificate } from "./server-certificate.ts";

/**
 * The most streams of one connection; each has 64 KiB of headers and a window of 64 KiB at most.
 */
const MAX_STREAMS = 128;
/** A connection without an open request is closed after that. */
const IDLE_MS = 72_000;

/** A response over HTTP/2 with the members that Node's type promises and its object lacks. */
class StreamResponse extends Http2ServerResponse {}

function define(name: keyof Http2ServerResponse, read: (of: Http2ServerResponse) => boolean): void {
  Object.defineProperty(StreamResponse.prototype, name, {
    get(this: Http2ServerResponse) {
      return read(this);
    },
  });
}
define("destroyed", ({ stream }) => stream.destroyed);
// The stream of a client that has gone ends too, before the answer.
define("writableFinished", ({ writableEnded, stream }) => {
  return writableEnded && stream.writableFinished && !stream.aborted;
});

/** HTTP/2 and, for clients that do not offer it in the handshake, HTTP/1.1. */
export function createHttpsServer(
  listener: RequestListener,
  files: CertificateFiles,
  { headersTimeoutMs, requestTimeoutMs }: Pick<FixedTimes, "headersTimeoutMs" | "requestTimeoutMs">,
): Server {
  const { cert, key } = readServerCertificate(files);
  const secure = createSecureServer({
    cert,
    key,
    minVersion: MIN_TLS,
    handshakeTimeout: headersTimeoutMs,
    allowHTTP1: true,
    settings: { maxConcurrentStreams: MAX_STREAMS },
    Http2ServerResponse: StreamResponse,
  });
  // Node's type lacks what it has of a `Server` with HTTP/1.1.
  const server = Object.assign(secure as unknown as Server, {
    connectionsCheckingInterval: Math.min(1_000, headersTimeoutMs),
    keepAliveTimeout: IDLE_MS,
    requestTimeout: requestTimeoutMs,
    closeAllConnections: connectionsOf(secure),
  });
  secure.on("session", (session) => limitSession(session, headersTimeoutMs));
  secure.on("request", (request, response) => {
    if (request.httpVersionMajor === 2) limitRequest(request, response, server);
  });
  server.on("request", listener);
  return server;
}

/** Returns what closes the connections that are open then. */
function connectionsOf(server: ReturnType<typeof createSecureServer>): () => void {
  const open = new Set<TLSSocket>();
  server.on("secureConnection", (socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  return () => {
    for (const socket of open) socket.destroy();
  };
}

/** Closes a connection on which no request has begun in time, whatever else it sends. */
function limitSession(session: ServerHttp2Session, firstMs: number): void {
  let streams = 0;
  const closeIn = (ms: number) => setTimeout(() => session.destroy(), ms).unref();
  let timer = closeIn(firstMs);
  session.on("stream", (stream) => {
    streams++;
    clearTimeout(timer);
    stream.once("close", () => {
      streams--;
      clearTimeout(timer);
      if (streams === 0 && !session.closed) timer = closeIn(IDLE_MS);
    });
  });
  session.once("close", () => clearTimeout(timer));
}

/** Node bounds the time of requests over HTTP/1.1 alone, and lets a refused body wait forever. */
function limitRequest(
  request: Http2ServerRequest,
  response: Http2ServerResponse,
  server: Server,
): void {
  if (request.complete) return;
  response.once("finish", () => {
    if (!request.complete) request.stream.close(constants.NGHTTP2_NO_ERROR);
  });
  const sinceMs = performance.now();
  const check = (): void => {
    // It is longer after a stall of this process.
    const leftMs = server.requestTimeout - (performance.now() - sinceMs);
    if (leftMs > 0) timer = setTimeout(check, leftMs).unref();
    else if (request.complete || mayTakeLong(request)) return;
    else if (response.headersSent) request.stream.close(constants.NGHTTP2_CANCEL);
    else refuseLate(request, response);
  };
  let timer = setTimeout(check, server.requestTimeout).unref();
  request.once("close", () => clearTimeout(timer));
}

function refuseLate(request: Http2ServerRequest, response: Http2ServerResponse): void {
  const refusal = new AppError("request_timeout", "The request took too long to arrive.");
  const { status, headers, body } = errorReply(refusal, requestIdOf(request), request.url);
  response.writeHead(status, headers);
  response.end(body);
}
