import { toAppError } from "@heddle/base/errors";
import { tagsOf } from "@heddle/contracts/api/events/log";
import type { AuditContext, AuditRecord, Classification } from "@heddle/control/audit/records";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { MasterConfig } from "../../config/config.ts";
import { type AuditCall, duringCall } from "../../control-plane/event-log/audit-call.ts";
import type { CallerRequest } from "../access.ts";
import { clientAddress } from "../connections/client-address.ts";
import { shownPath } from "../error-reply.ts";
import type { Caller } from "../identity/caller.ts";
import type { ServedConfig } from "../serves.ts";
import type { AuditTrail } from "./audit-trail.ts";

/** Where the client has gone before the answer began. */
const CLIENT_CLOSED = 499;
const SESSION = /^[\x21-\x7e]{1,128}$/;
const COMPLIANCE_LEVEL = /^[\x21-\x7e]{1,64}$/;

/** A WeakMap of calls would do, but minor garbage collections keep all that its values refer to. */
interface AuditedRequest extends CallerRequest {
  auditCall: AuditCall | null;
}

/**
 * Has every call that changes, starts or reads data of models, and every denied one, make exactly
 * one event. It is that of the change which names the call, or a record of the call.
 */
export function auditCalls(
  instance: FastifyInstance,
  trail: AuditTrail,
  mode: MasterConfig["auditMode"],
): void {
  instance.decorateRequest("auditCall", null);
  instance.addHook("onRequest", (plain, reply, done) => {
    const request = plain as AuditedRequest;
    const call = { context: () => contextOf(request, trail), isLogged: false };
    request.auditCall = call;
    reply.raw.once("close", () => {
      if (isUnknownBeyondLimit(request, reply)) return trail.count();
      const record = recordOf(request, reply, call);
      if (record) trail.record(record);
    });
    done();
  });
  instance.addHook("preHandler", (request, _reply, done) => {
    const { auditCall: call } = request as AuditedRequest;
    if (!call) return done();
    if (mode === "async" || !isAccess(request)) return duringCall(call, done);
    call.isLogged = true;
    const record = { ...call.context(), kind: "access", atMs: Date.now() } as const;
    const recorded = trail.recordNow({ ...record, subject: "models" });
    recorded.then(
      () => duringCall(call, done),
      (error: Error) => {
        // The refusal is recorded, unless the call itself may be.
        call.isLogged = toAppError(error).code === "outcome_unknown";
        done(error);
      },
    );
  });
}

function contextOf(
  request: CallerRequest,
  { classifiesCalls }: Pick<AuditTrail, "classifiesCalls">,
): AuditContext {
  const { knownCaller: caller, id, headers } = request;
  const address = clientAddress(request);
  const session = String(headers["x-session-id"] ?? "");
  const classified = classifiesCalls ? classificationOf(headers) : {};
  return {
    ...(caller && { ...identityOf(caller), project: caller.project }),
    ...(SESSION.test(session) && { session }),
    ...(Object.keys(classified).length > 0 && { classified }),
    request: id,
    ...(address && { address }),
    route: routeOf(request),
  };
}

function classificationOf(headers: FastifyRequest["headers"]): Classification {
  const compliance = String(headers["x-compliance-level"] ?? "");
  const tags = tagsOf(String(headers["x-event-tags"] ?? ""));
  return {
    ...(COMPLIANCE_LEVEL.test(compliance) && { compliance }),
    ...(tags.length > 0 && { tags }),
  };
}

/** Who is answerable: for a key of a service account, that account. */
function identityOf({ kind, id, name, service }: Caller): Pick<AuditContext, "user" | "key"> {
  if (service !== undefined) return { user: `service:${service}`, key: id };
  return { user: kind === "user" ? `user:${name}` : `key:${id}` };
}

function operationOf(request: FastifyRequest): ServedConfig["operation"] {
  return (request.routeOptions.config as ServedConfig | undefined)?.operation;
}

function routeOf(request: FastifyRequest): string {
  return `${request.method} ${operationOf(request)?.path ?? shownPath(request.url)}`;
}

function isAccess(request: FastifyRequest): boolean {
  return request.method === "POST" && operationOf(request)?.permission === "inference:create";
}

/** Undefined for calls that have an event already, and for those that need none. */
function recordOf(
  request: FastifyRequest,
  reply: FastifyReply,
  call: AuditCall,
): AuditRecord | undefined {
  if (call.isLogged || !operationOf(request)) return undefined;
  const status = reply.raw.headersSent ? reply.raw.statusCode : CLIENT_CLOSED;
  const kind = kindOf(request, status);
  if (!kind) return undefined;
  const subject = call.subject ?? shownPath(request.url).replace(/\?.*/, "");
  return { ...call.context(), kind, subject, status, atMs: Date.now() };
}

/** Refused by UnknownCallers: anyone can make such calls, and any number of them. */
function isUnknownBeyondLimit({ knownCaller }: CallerRequest, { raw }: FastifyReply): boolean {
  return !knownCaller && raw.headersSent && raw.statusCode === 429;
}

function kindOf(request: FastifyRequest, status: number): AuditRecord["kind"] | undefined {
  if (status === 401 || status === 403) return "denied";
  if (isAccess(request)) return "access";
  return request.method === "GET" || request.method === "HEAD" ? undefined : "call";
}
