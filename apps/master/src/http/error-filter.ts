import { AppError } from "@heddle/base/errors";
import type { Route } from "@heddle/contracts/api/cluster";
import type { Logger } from "@heddle/observability/logger";
import {
  type ArgumentsHost,
  Catch,
  type ExceptionFilter,
  HttpException,
  Inject,
} from "@nestjs/common";
import type { FastifyReply, FastifyRequest } from "fastify";
import { LOGGER } from "../config/config.module.ts";
import { errorReply, shownPath } from "./error-reply.ts";
import { allowedMethods, isAtBase, pathAtBase, ROUTES } from "./route-table.ts";

/** Converts what a route, the router or the body parser threw into the answer of its API. */
@Catch()
export class ErrorFilter implements ExceptionFilter {
  readonly #routes: readonly Route[];
  readonly #logger: Logger;

  constructor(@Inject(ROUTES) routes: readonly Route[], @Inject(LOGGER) logger: Logger) {
    this.#routes = routes;
    this.#logger = logger;
  }

  catch(thrown: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    const request = http.getRequest<FastifyRequest>();
    const reply = http.getResponse<FastifyReply>();
    if (reply.sent || reply.raw.headersSent) return;
    const path = pathOf(request.url);
    const error = this.#toAppError(thrown, request, path);
    const { status, headers, body } = errorReply(error, request.id, path);
    if (error.code === "method_not_allowed") {
      reply.header("allow", allowedMethods(this.#routes, path).join(", "));
    }
    reply.code(status).headers(headers).send(body);
  }

  #toAppError(thrown: unknown, request: FastifyRequest, path: string): AppError {
    if (thrown instanceof AppError) return thrown;
    if (thrown instanceof HttpException && thrown.getStatus() === 404) {
      return this.#unrouted(request.method, path);
    }
    const known = ofFramework(thrown);
    if (known) return known;
    this.#logger.error({ err: thrown, requestId: request.id }, "a request failed unexpectedly");
    return new AppError("server_error", "The server had an error while processing the request.");
  }

  #unrouted(method: string, path: string): AppError {
    const allowed = allowedMethods(this.#routes, path);
    if (allowed.length === 0) {
      const route = `${method} ${shownPath(path)}`;
      return new AppError("not_found", `Unknown route: ${route}. ${this.#whereElse(path)}`);
    }
    const message = `${method} is not allowed on ${path}; use ${allowed.join(" or ")}.`;
    return new AppError("method_not_allowed", message);
  }

  /** Most requests for an unknown route have a wrong base URL. */
  #whereElse(path: string): string {
    const meant = pathAtBase(this.#routes, path);
    if (meant === undefined) {
      const base = isAtBase(path) ? "" : "All of the API lies under /api/v1. ";
      return `${base}GET /api/v1/endpoints lists the routes.`;
    }
    if (!isAtBase(meant)) return `It is ${shownPath(meant)} here.`;
    return `It is ${shownPath(meant)} here: a base URL ends in /api/v1, after the host and port.`;
  }
}

function pathOf(url: string): string {
  const end = url.indexOf("?");
  return end === -1 ? url : url.slice(0, end);
}

/** Refusals of Fastify and Nest, by status; undefined for an internal error. */
function ofFramework(thrown: unknown): AppError | undefined {
  const status = statusOf(thrown);
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  if (status === 413)
    return new AppError("request_too_large", `The request is too large: ${message}.`);
  if (status === 415) {
    const text = "The body must be JSON: send the header `Content-Type: application/json`.";
    return new AppError("unsupported_media_type", text);
  }
  if (status === 408)
    return new AppError("request_timeout", "The request took too long to arrive.");
  if (status === 503) return new AppError("unavailable", "This master is shutting down.");
  if (status !== undefined && status >= 400 && status < 500) {
    return new AppError("invalid_value", `The request is malformed: ${message}.`);
  }
  return undefined;
}

function statusOf(thrown: unknown): number | undefined {
  if (thrown instanceof HttpException) return thrown.getStatus();
  const { statusCode } = (thrown ?? {}) as { statusCode?: unknown };
  return typeof statusCode === "number" ? statusCode : undefined;
}
