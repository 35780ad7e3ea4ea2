import { createHash, randomUUID } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { eventLogOperations, type LoggedEvent } from "@heddle/contracts/api/events/log";
import type { ClientEvent } from "@heddle/control/audit/records";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { canonicalJson } from "../../http/json-body.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { ownEventLog } from "./own-event-log.ts";

/** The sources of the cluster's own events, and of callers that name none. */
const OWN_SOURCES = "//heddle/";

/** What of an answer follows from the request alone. */
type Named = Pick<LoggedEvent, "source" | "id" | "stream">;

/** Events that clients log. */
@Controller()
export class ClientEventsController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#changes = changes;
  }

  @Serves(eventLogOperations.log)
  log(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<LoggedEvent> {
    return this.#changes.make(
      request,
      reply,
      () => {
        const asked = requested(request);
        ownEventLog(this.#control);
        return asked;
      },
      (named, made) => ({
        object: "logged_event",
        ...named,
        revision: made.version ?? null,
        repeated: made.wasThere ?? false,
      }),
    );
  }
}

function requested(request: CallerRequest): RequestedChange<Named> {
  const caller = requestCaller(request);
  const { project } = caller;
  const body = bodyOf(eventLogOperations.log, request);
  const { type, data, tags, audit = {}, stream, expected_revision: expected } = body;
  const own = `${OWN_SOURCES}${caller.kind}s/${caller.id}`;
  const { source = own, id = randomUUID() } = body;
  if (source !== own && source.toLowerCase().startsWith(OWN_SOURCES)) {
    const message = `Invalid value for 'source': ${OWN_SOURCES}... are the cluster and its callers. Leave it out to be named yourself.`;
    throw new AppError("invalid_value", message, { param: "source" });
  }
  const event: ClientEvent = {
    type,
    source,
    id,
    subject: body.subject ?? stream ?? type,
    project,
    ...(stream !== undefined && { stream }),
    data,
    tags,
    actor: audit.user_id,
    session: audit.session_id,
    correlation: audit.request_id,
    compliance: audit.compliance_level,
  };
  const name = sha256(`${project}\n${source}\n${id}`);
  const fingerprint = sha256(canonicalJson(Buffer.from(JSON.stringify(event))));
  const command = {
    type: "events.log",
    atMs: Date.now(),
    event,
    name,
    fingerprint,
    expected,
  } as const;
  return { command, answer: { source, id, stream: stream ?? null } };
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
