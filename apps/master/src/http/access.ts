import type { Later } from "@heddle/auth/limits/limit-store";
import { grants } from "@heddle/auth/scopes";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ApiOperation } from "@heddle/contracts/api/operation";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Authenticator } from "./identity/authenticator.ts";
import { type Caller, callerText } from "./identity/caller.ts";
import { endWithRights, mayBeEndless } from "./identity/open-streams.ts";
import { UnknownCallers } from "./identity/unknown-callers.ts";
import type { LastUsed } from "./last-used.ts";
import type { CallLimiter } from "./limits/call-limiter.ts";
import type { CallReservation } from "./limits/call-reservation.ts";

/** A request after the access check; all are null only on public routes, and there without a key. */
export interface CallerRequest extends FastifyRequest {
  /** Who calls: a key, or a user with a token. */
  caller: Caller | null;
  /** The caller, also where the call is refused. */
  knownCaller: Caller | null;
  /** The call's part of its limits; released with the answer unless it is handed over. */
  reservation: CallReservation | null;
}

/** Called when a key's limits refuse a call of a route with that permission. */
export type OnLimited = (permission: string | undefined, error: AppError) => void;

/**
 * Authenticates and authorises a call by its headers, before its body is read. The server runs it
 * for every route, also for those that declare nothing.
 */
export class AccessCheck {
  readonly #authenticator: Authenticator;
  readonly #lastUsed: LastUsed;
  readonly #limits: CallLimiter;
  readonly #onLimited: OnLimited;
  readonly #rightsCheckMs: number;
  readonly #unknown = new UnknownCallers();

  constructor(
    authenticator: Authenticator,
    lastUsed: LastUsed,
    limits: CallLimiter,
    onLimited: OnLimited,
    rightsCheckMs: number,
  ) {
    this.#rightsCheckMs = rightsCheckMs;
    this.#authenticator = authenticator;
    this.#lastUsed = lastUsed;
    this.#limits = limits;
    this.#onLimited = onLimited;
  }

  /** The check of an operation's calls; it throws the refusal, or rejects with it. */
  of(
    operation: Pick<ApiOperation, "method" | "permission" | "readsCaller" | "replies"> | undefined,
  ): (request: CallerRequest, reply: FastifyReply) => Later<void> {
    const isPublic = operation?.permission === "public";
    if (isPublic && !operation.readsCaller) return () => undefined;
    const permission = isPublic ? "authenticated" : operation?.permission;
    const isEndless = operation !== undefined && mayBeEndless(operation);
    return (request, reply) => {
      if (isPublic && !this.#authenticator.hasCredentials(request)) return;
      const check = (caller: Caller) => {
        const checked = this.#check(caller, permission, request, reply);
        if (!isEndless) return checked;
        return after(checked, () => this.#follow(caller, permission, request, reply));
      };
      const caller = this.#callerOf(request);
      return caller instanceof Promise ? caller.then(check) : check(caller);
    };
  }

  #follow(
    caller: Caller,
    permission: string | undefined,
    request: CallerRequest,
    reply: FastifyReply,
  ): void {
    const again = async () => {
      const present = await this.#authenticator.callerOf(request);
      authorize(present, permission);
      return present;
    };
    void endWithRights(reply, caller, again, this.#rightsCheckMs);
  }

  #callerOf(request: CallerRequest): Later<Caller> {
    const refuse = (thrown: unknown): never => {
      throw this.#unknown.refusal(thrown);
    };
    try {
      const caller = this.#authenticator.callerOf(request);
      return caller instanceof Promise ? caller.catch(refuse) : caller;
    } catch (thrown) {
      return refuse(thrown);
    }
  }

  #check(
    caller: Caller,
    permission: string | undefined,
    request: CallerRequest,
    reply: FastifyReply,
  ): Later<void> {
    request.knownCaller = caller;
    const refuse = (thrown: unknown): never => {
      reply.headers(this.#limits.headersOf(caller));
      this.#onLimited(permission, toAppError(thrown));
      throw thrown;
    };
    const go = (reservation: CallReservation) => {
      finishWith(reply, reservation);
      authorize(caller, permission);
      request.caller = caller;
      request.reservation = reservation;
      if (caller.kind === "key") this.#lastUsed.touch(caller.id);
    };
    const admitted = this.#admit(caller, refuse);
    return admitted instanceof Promise ? admitted.then(go, refuse) : go(admitted);
  }

  /** From here on the call counts against its limits, whatever its result. */
  #admit(key: Caller, refuse: (thrown: unknown) => never): Later<CallReservation> {
    try {
      return this.#limits.admit(key);
    } catch (thrown) {
      return refuse(thrown);
    }
  }
}

function after(checked: Later<void>, next: () => void): Later<void> {
  return checked instanceof Promise ? checked.then(next) : next();
}

/** Ends what nothing has taken over with the request, which may be closed already. */
function finishWith(reply: FastifyReply, reservation: CallReservation): void {
  const finish = () => {
    if (!reservation.isHandedOver) reservation.finish();
  };
  if (reply.raw.destroyed) finish();
  else reply.raw.once("close", finish);
}

function authorize(caller: Caller, permission: string | undefined): void {
  if (permission === undefined) {
    throw new AppError("permission_denied", "This route declares no permission and is denied.");
  }
  if (permission === "authenticated" || grants(caller.scopes, permission)) return;
  const message = `${callerText(caller)} lacks the permission ${permission}.`;
  throw new AppError("permission_denied", message);
}
