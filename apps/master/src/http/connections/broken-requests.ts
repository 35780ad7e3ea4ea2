import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http";
import { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { AppError } from "@heddle/base/errors";
import { errorReply } from "../error-reply.ts";
import { requestIdOf, uniqueSuffix } from "../request-id.ts";

const TOO_SLOW = "ERR_HTTP_REQUEST_TIMEOUT";

/** What carries requests that may take longer than others: their route has a bound of its own. */
const longRequests = new WeakSet<object>();

/** Lifts the server's bound on the time of this request; returns what restores it. */
export function allowLongRequest(request: IncomingMessage): () => void {
  const carrier = carrierOf(request);
  longRequests.add(carrier);
  return () => {
    longRequests.delete(carrier);
  };
}

export function mayTakeLong(request: IncomingMessage | Http2ServerRequest): boolean {
  return longRequests.has(carrierOf(request));
}

/** Its stream of HTTP/2, or its connection. */
function carrierOf(request: IncomingMessage | Http2ServerRequest): object {
  return request instanceof Http2ServerRequest ? request.stream : request.socket;
}

/** A request that Node's parser refuses never reaches a route: the answer goes to the socket. */
export function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === TOO_SLOW && longRequests.has(socket)) return;
  // Without a handshake no answer can be read.
  const isHandshake = /^(ERR_SSL|ERR_TLS|EPROTO)/.test(error.code ?? "");
  if (isHandshake || error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  answerAndEnd(socket, refusalOf(error.code), `req_${uniqueSuffix()}`);
}

/** Answers the requests that Node does not pass to routes: tunnels and unknown expectations. */
export function answerUnservable(server: Server): void {
  server.on("connect", (request: IncomingMessage, socket: Duplex | Http2ServerResponse) => {
    if (socket instanceof Http2ServerResponse) {
      socket.writeHead(405).end();
      return;
    }
    // Its client may be gone already; no other listener handles this socket any more.
    socket.on("error", () => socket.destroy());
    const refusal = new AppError(
      "method_not_allowed",
      "CONNECT is not allowed: this server is not a proxy.",
    );
    answerAndEnd(socket, refusal, requestIdOf(request), { allow: "DELETE, GET, PATCH, POST, PUT" });
  });
  server.on("checkExpectation", refuseExpectation);
}

function refuseExpectation(request: IncomingMessage, response: ServerResponse): void {
  const message = "The header `Expect` asks for what is not offered: send `100-continue` or none.";
  const requestId = requestIdOf(request);
  const refusal = new AppError("invalid_value", message);
  const { status, headers, body } = errorReply(refusal, requestId, request.url ?? "", 417);
  const length = Buffer.byteLength(body);
  response.writeHead(status, { ...headers, "x-request-id": requestId, "content-length": length });
  response.end(body);
}

function answerAndEnd(
  socket: Duplex,
  refusal: AppError,
  requestId: string,
  more: Record<string, string> = {},
): void {
  const { status, headers, body } = errorReply(refusal, requestId, "");
  const all: Record<string, string> = {
    ...headers,
    ...more,
    "x-request-id": requestId,
    "content-length": String(Buffer.byteLength(body)),
    connection: "close",
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`);
}

function refusalOf(code: string | undefined): AppError {
  if (code === TOO_SLOW) {
    return new AppError("request_timeout", "The request took too long to arrive.");
  }
  if (code === "HPE_HEADER_OVERFLOW") {
    return new AppError("request_too_large", "The request's headers are too large.");
  }
  return new AppError("invalid_value", "The request is not valid HTTP.");
}
