import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { AppError } from "@heddle/base/errors";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { readBody } from "./body-reader.ts";
import { errorReply } from "./error-reply.ts";
import { requestIdOf, uniqueSuffix } from "./request-id.ts";

export interface HttpLimits {
  readonly maxBodyBytes: number;
  /** How long a client may take to send its headers, and its whole request. */
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

export const DEFAULT_HTTP_LIMITS: HttpLimits = {
  maxBodyBytes: 4 * 1024 * 1024,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
};

/** The HTTP server: ids, body reading and the timeouts against slow clients. No routes. */
export function createHttpAdapter(limits: HttpLimits): FastifyAdapter {
  const adapter = new FastifyAdapter({
    requestTimeout: limits.requestTimeoutMs,
    http: {
      headersTimeout: limits.headersTimeoutMs,
      connectionsCheckingInterval: Math.min(1000, limits.headersTimeoutMs),
      keepAliveTimeout: 72_000,
    },
    genReqId: requestIdOf,
    requestIdHeader: false,
    forceCloseConnections: true,
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 256 },
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: answerBadUrl,
  });
  const instance = adapter.getInstance<FastifyInstance>();
  instance.decorateRequest("apiKey", null);
  instance.addHook("onRequest", (request, reply, done) => {
    reply.header("x-request-id", request.id);
    done();
  });
  readBodiesAsBytes(instance, limits.maxBodyBytes);
  return adapter;
}

/** JSON is parsed by the route, after the guard: nobody without a key can have it done. */
function readBodiesAsBytes(instance: FastifyInstance, maxBodyBytes: number): void {
  instance.removeAllContentTypeParsers();
  instance.addContentTypeParser("application/json", (_request, payload, done) => {
    readBody(payload as IncomingMessage, maxBodyBytes, done);
  });
}

/** A URL that the router cannot decode reaches neither a hook nor a filter: it is answered here. */
function answerBadUrl(_error: Error, request: FastifyRequest, reply: FastifyReply): void {
  const message = `The path ${JSON.stringify(request.url)} is malformed; percent-encode it as UTF-8.`;
  const refusal = new AppError("invalid_value", message);
  const { status, headers, body } = errorReply(refusal, request.id, request.url);
  reply
    .code(status)
    .headers({ ...headers, "x-request-id": request.id })
    .send(body);
}

/** What Node's parser refuses never becomes a request: the answer is written to the socket. */
function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const requestId = `req_${uniqueSuffix()}`;
  const { status, headers, body } = errorReply(refusalOf(error.code), requestId, "");
  const all: Record<string, string> = {
    ...headers,
    "x-request-id": requestId,
    "content-length": String(Buffer.byteLength(body)),
    connection: "close",
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`);
}

function refusalOf(code: string | undefined): AppError {
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") {
    return new AppError("request_timeout", "The request took too long to arrive.");
  }
  if (code === "HPE_HEADER_OVERFLOW") {
    return new AppError("request_too_large", "The request's headers are too large.");
  }
  return new AppError("invalid_value", "The request is not valid HTTP.");
}
