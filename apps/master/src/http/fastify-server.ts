import type { IncomingMessage, RequestListener, ServerOptions } from "node:http";
import { AppError } from "@heddle/base/errors";
import { isOrchestration } from "@heddle/contracts/api/operations";
import { NotFoundException, UnsupportedMediaTypeException } from "@nestjs/common";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { MasterConfig } from "../config/config.ts";
import type { AccessCheck, CallerRequest } from "./access.ts";
import { BodyReader } from "./body-reader.ts";
import { answerBrokenRequest, answerUnservable } from "./connections/broken-requests.ts";
import { proxyTrust } from "./connections/client-address.ts";
import { compensateTimeoutsForEventLoopLag } from "./connections/event-loop-lag-compensation.ts";
import { answerHalfClosed } from "./connections/half-closed.ts";
import { createHttpsServer } from "./connections/https-server.ts";
import { answerCors } from "./cors.ts";
import { errorReply, shownPath } from "./error-reply.ts";
import { requestIdOf } from "./request-id.ts";
import { checkBody, type ParameterValues, parsedQuery } from "./route-input.ts";
import type { ServedConfig } from "./serves.ts";

/** The settings of the HTTP server. */
export type HttpSettings = Pick<
  MasterConfig,
  | "maxBodyBytes"
  | "maxReadingBytes"
  | "maxConnections"
  | "corsOrigins"
  | "fixedTimes"
  | "httpTls"
  | "trustedProxies"
>;

const NO_BYTES = Buffer.alloc(0);
/** The longest part of a path, as a model's id. */
const MAX_PARAM_CHARS = 256;

/** The HTTP server with its bounds against slow clients; it has no routes and no access check. */
export function createHttpAdapter(settings: HttpSettings): FastifyAdapter {
  const { headersTimeoutMs, requestTimeoutMs } = settings.fixedTimes;
  const http = {
    headersTimeout: headersTimeoutMs,
    connectionsCheckingInterval: Math.min(1000, headersTimeoutMs),
    keepAliveTimeout: 72_000,
    // Node would refuse such a request without a reason; the hook below gives one.
    requireHostHeader: false,
  };
  const adapter = new FastifyAdapter({
    requestTimeout: requestTimeoutMs,
    ...serverOf(settings, http),
    trustProxy: proxyTrust(settings.trustedProxies),
    genReqId: requestIdOf,
    requestIdHeader: false,
    forceCloseConnections: true,
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: MAX_PARAM_CHARS },
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: answerBadUrl,
  });
  const instance = adapter.getInstance<FastifyInstance>();
  instance.decorateRequest("caller", null);
  instance.decorateRequest("knownCaller", null);
  instance.decorateRequest("reservation", null);
  instance.addHook("onRequest", (request, reply, done) => {
    reply.header("x-request-id", request.id);
    if (answerCors(request, reply, settings.corsOrigins)) return;
    done(refusalByHead(request));
  });
  answerUnservable(instance.server);
  // Over TLS a client that closes its side closes the connection.
  if (!settings.httpTls) answerHalfClosed(instance.server);
  compensateTimeoutsForEventLoopLag(instance.server, settings.fixedTimes);
  instance.server.maxConnections = settings.maxConnections;
  return adapter;
}

function serverOf({ httpTls, fixedTimes }: HttpSettings, http: ServerOptions) {
  if (!httpTls) return { http };
  return {
    serverFactory: (listener: RequestListener) => createHttpsServer(listener, httpTls, fixedTimes),
  };
}

/** Guards the routes that are added afterwards: access, body reading and the checks of input. */
export function guardRoutes(
  instance: FastifyInstance,
  access: AccessCheck,
  { maxBodyBytes, maxReadingBytes }: HttpSettings,
): void {
  const bodies = new BodyReader(maxBodyBytes, maxReadingBytes);
  checkAccess(instance, access, bodies);
  readBodiesAsBytes(instance, bodies);
}

function refusalByHead({ headers, raw, is404 }: FastifyRequest): Error | undefined {
  if (headers.host === undefined && raw.httpVersion === "1.1") {
    return new AppError("invalid_value", "The header `Host` is missing: HTTP/1.1 asks for it.");
  }
  // Otherwise the router would read the whole body before it answers 404.
  return is404 ? new NotFoundException() : undefined;
}

/** Adds its checks to every route; all but the body's run before the body is read. */
function checkAccess(instance: FastifyInstance, access: AccessCheck, bodies: BodyReader): void {
  instance.addHook("onRoute", (route) => {
    const { operation } = (route.config ?? {}) as ServedConfig;
    const check = access.of(operation);
    // OpenAI SDKs may send parameters unknown to this version.
    const isStrict = isOrchestration(route.url);
    route.onRequest = (request, reply, done) => {
      const checkRest = () => {
        if (operation?.form) bodies.checkEncoding(request.headers);
        else bodies.checkHeaders(request.headers);
        if (operation)
          request.query = parsedQuery(operation, request.query as ParameterValues, isStrict);
      };
      attempt(done, () => {
        const checked = check(request as CallerRequest, reply);
        if (checked instanceof Promise) return checked.then(checkRest);
        return checkRest();
      });
    };
    if (!isStrict) return;
    route.preHandler = (request, _reply, done) => {
      attempt(done, () => checkBody(request, operation));
    };
  });
}

function attempt(done: (error?: Error) => void, check: () => Promise<void> | void): void {
  let checked: Promise<void> | void;
  try {
    checked = check();
  } catch (thrown) {
    done(thrown as Error);
    return;
  }
  if (checked) checked.then(() => done(), done);
  else done();
}

/** The route parses the JSON, because a repeated request may be answered without it. */
function readBodiesAsBytes(instance: FastifyInstance, bodies: BodyReader): void {
  instance.removeAllContentTypeParsers();
  // A request without a body reaches no parser.
  instance.addHook("preValidation", (request, _reply, done) => {
    request.body ??= NO_BYTES;
    done();
  });
  instance.addContentTypeParser("application/json", (_request, payload, done) => {
    bodies.read(payload as IncomingMessage, done);
  });
  // Only the routes that other programs call in this form, as identity providers do.
  instance.addContentTypeParser("application/x-www-form-urlencoded", (request, payload, done) => {
    const { isUrlencoded } = request.routeOptions.config as ServedConfig;
    if (isUrlencoded) bodies.read(payload as IncomingMessage, done);
    else done(new UnsupportedMediaTypeException());
  });
  // Its route reads it: forms have files, which are larger than bodies.
  instance.addContentTypeParser("multipart/form-data", (request, payload, done) => {
    const { operation } = request.routeOptions.config as ServedConfig;
    if (operation?.form) done(null, payload);
    else done(new UnsupportedMediaTypeException());
  });
}

/** A URL that the router refuses reaches no hook or filter: it is answered here. */
function answerBadUrl(error: Error, request: FastifyRequest, reply: FastifyReply): void {
  const isTooLong = (error as { code?: unknown }).code === "FST_ERR_MAX_PARAM_LENGTH";
  const why = isTooLong
    ? `has a part of more than ${MAX_PARAM_CHARS} characters, and no id is that long`
    : "is malformed; percent-encode it as UTF-8";
  const message = `The path ${JSON.stringify(shownPath(request.url))} ${why}.`;
  const refusal = new AppError("invalid_value", message);
  const { status, headers, body } = errorReply(refusal, request.id, request.url);
  reply
    .code(status)
    .headers({ ...headers, "x-request-id": request.id })
    .send(body);
}
