import type { OpenSpan } from "@heddle/observability/tracing/span";
import { parseTraceParent, type TraceContext } from "@heddle/observability/tracing/trace-context";
import { tracing, withSpan } from "@heddle/observability/tracing/tracing";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { clientAddress } from "./connections/client-address.ts";
import { shownPath } from "./error-reply.ts";

/** The paths of probes and scrapes, which would be most spans of an idle cluster. */
const UNTRACED = /^\/(livez|readyz|healthz|metrics)\b/;

const spans = new WeakMap<FastifyRequest, OpenSpan>();

/** Gives every request a span, within its caller's trace; nothing is added where traces are off. */
export function traceRequests(instance: FastifyInstance): void {
  if (!tracing()) return;
  instance.addHook("onRequest", (request, reply, done) => {
    const span = UNTRACED.test(request.url) ? undefined : openSpan(request);
    if (!span) return done();
    spans.set(request, span);
    reply.raw.once("close", () => {
      const { headersSent, statusCode, writableFinished } = reply.raw;
      span.set({ "http.response.status_code": headersSent ? statusCode : undefined });
      if (!writableFinished) span.end("client_closed");
      else span.end(statusCode >= 500 ? String(statusCode) : undefined);
    });
    withSpan(span, done);
  });
  // The body was read by events of the connection, which know nothing of the span.
  instance.addHook("preHandler", (request, _reply, done) => withSpan(spans.get(request), done));
}

/** The span that the caller names; undefined if it names none. */
export function callersTrace({
  headers,
}: Pick<FastifyRequest, "headers">): TraceContext | undefined {
  return parseTraceParent(headers["traceparent"]);
}

function openSpan(request: FastifyRequest): OpenSpan | undefined {
  const { method, id, routeOptions } = request;
  const route = routeOptions.url;
  return tracing()?.start({
    name: route ? `${method} ${route}` : method,
    kind: "server",
    parent: callersTrace(request),
    attributes: {
      "http.request.method": method,
      "http.route": route,
      "client.address": clientAddress(request),
      "url.scheme": request.protocol === "https" ? "https" : "http",
      "url.path": shownPath(request.url).replace(/\?.*/, ""),
      "heddle.request.id": id,
    },
  });
}
