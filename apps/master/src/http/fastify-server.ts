import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { AppError } from "@heddle/base/errors";
import { NotFoundException } from "@nestjs/common";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AccessCheck, AccessConfig, CallerRequest } from "./access.ts";
import { BodyReader } from "./body-reader.ts";
import { errorReply } from "./error-reply.ts";
import { requestIdOf, uniqueSuffix } from "./request-id.ts";

export interface HttpLimits {
  readonly maxBodyBytes: number;
  /** Bytes of bodies that are being read at once, over all connections; one that exceeds it is 503. */
  readonly maxReadingBytes: number;
  /** Connections at once; further ones are closed as they come. */
  readonly maxConnections: number;
  /** How long a client may take to send its headers, and its whole request. */
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

export const DEFAULT_HTTP_LIMITS: HttpLimits = {
  maxBodyBytes: 4 * 1024 * 1024,
  maxReadingBytes: 256 * 1024 * 1024,
  maxConnections: 16_384,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
};

/** The HTTP server: ids, access, body reading and the bounds against slow clients. No routes. */
export function createHttpAdapter(limits: HttpLimits, access: AccessCheck): FastifyAdapter {
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
    // Without this the router would read the whole body before it says that there is no route.
    done(request.is404 ? new NotFoundException() : undefined);
  });
  instance.server.maxConnections = limits.maxConnections;
  const bodies = new BodyReader(limits.maxBodyBytes, limits.maxReadingBytes);
  checkAccess(instance, access, bodies);
  readBodiesAsBytes(instance, bodies);
  return adapter;
}

/** Every route that is registered gets its check, which answers before the body is read. */
function checkAccess(instance: FastifyInstance, access: AccessCheck, bodies: BodyReader): void {
  instance.addHook("onRoute", (route) => {
    const { permission } = (route.config ?? {}) as AccessConfig;
    const check = access.of(permission);
    route.onRequest = (request, reply, done) => {
      try {
        check(request as CallerRequest, reply);
        bodies.checkHeaders(request.headers);
      } catch (thrown) {
        done(thrown as Error);
        return;
      }
      done();
    };
  });
}

/** JSON is parsed by the route, which may answer a repeated request without it. */
function readBodiesAsBytes(instance: FastifyInstance, bodies: BodyReader): void {
  instance.removeAllContentTypeParsers();
  instance.addContentTypeParser("application/json", (_request, payload, done) => {
    bodies.read(payload as IncomingMessage, done);
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
