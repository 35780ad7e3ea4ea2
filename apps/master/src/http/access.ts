import type { KeyVerifier } from "@heddle/auth/key-verifier";
import type { Later } from "@heddle/auth/limits/limit-store";
import { grants } from "@heddle/auth/scopes";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ApiKeyRecord } from "@heddle/control/state";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { InProcessCalls } from "./in-process-calls.ts";
import type { LastUsed } from "./last-used.ts";
import type { CallLimiter } from "./limits/call-limiter.ts";
import type { CallReservation } from "./limits/call-reservation.ts";

/** A request after the access check; both are null on public routes only. */
export interface CallerRequest extends FastifyRequest {
  /** The caller's key. */
  apiKey: ApiKeyRecord | null;
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
  readonly #verifier: KeyVerifier<ApiKeyRecord>;
  readonly #lastUsed: LastUsed;
  readonly #limits: CallLimiter;
  readonly #onLimited: OnLimited;
  readonly #inProcess: Pick<InProcessCalls, "keyOf">;

  constructor(
    verifier: KeyVerifier<ApiKeyRecord>,
    lastUsed: LastUsed,
    limits: CallLimiter,
    onLimited: OnLimited,
    inProcess: Pick<InProcessCalls, "keyOf">,
  ) {
    this.#verifier = verifier;
    this.#lastUsed = lastUsed;
    this.#limits = limits;
    this.#onLimited = onLimited;
    this.#inProcess = inProcess;
  }

  /** The check for routes that need a permission; it throws the refusal, or rejects with it. */
  of(permission: string | undefined): (request: CallerRequest, reply: FastifyReply) => Later<void> {
    if (permission === "public") return () => undefined;
    return (request, reply) => {
      const key = this.#authenticate(request);
      const refuse = (thrown: unknown): never => {
        reply.headers(this.#limits.headersOf(key));
        this.#onLimited(permission, toAppError(thrown));
        throw thrown;
      };
      const go = (reservation: CallReservation) => {
        finishWith(reply, reservation);
        authorize(key, permission);
        request.apiKey = key;
        request.reservation = reservation;
        this.#lastUsed.touch(key.id);
      };
      const admitted = this.#admit(key, refuse);
      return admitted instanceof Promise ? admitted.then(go, refuse) : go(admitted);
    };
  }

  /** From here on the call counts against its limits, whatever its result. */
  #admit(key: ApiKeyRecord, refuse: (thrown: unknown) => never): Later<CallReservation> {
    try {
      return this.#limits.admit(key);
    } catch (thrown) {
      return refuse(thrown);
    }
  }

  #authenticate({ raw, headers }: FastifyRequest): ApiKeyRecord {
    const id = this.#inProcess.keyOf(raw);
    const verified =
      id === undefined ? this.#verifier.verify(tokenOf(headers)) : this.#verifier.verifyId(id);
    if (!verified.ok) throw new AppError("invalid_api_key", verified.message);
    return verified.key;
  }
}

/** Ends what nothing has taken over with the request, which may be closed already. */
function finishWith(reply: FastifyReply, reservation: CallReservation): void {
  const finish = () => {
    if (!reservation.isHandedOver) reservation.finish();
  };
  if (reply.raw.destroyed) finish();
  else reply.raw.once("close", finish);
}

/** The API key of the headers: a bearer token, or `x-api-key` as Anthropic's clients send it. */
function tokenOf({ authorization, "x-api-key": apiKey }: FastifyRequest["headers"]): string {
  if (!authorization && typeof apiKey === "string" && apiKey !== "") return apiKey;
  if (!authorization) {
    const message = "No API key was given. Send the header `Authorization: Bearer <API_KEY>`.";
    throw new AppError("invalid_api_key", message);
  }
  const token = /^bearer +(\S+) *$/i.exec(authorization)?.[1];
  if (token === undefined) {
    const message = "The Authorization header is not of the form `Bearer <API_KEY>`.";
    throw new AppError("invalid_api_key", message);
  }
  return token;
}

function authorize(key: ApiKeyRecord, permission: string | undefined): void {
  if (permission === undefined) {
    throw new AppError("permission_denied", "This route declares no permission and is denied.");
  }
  if (permission !== "authenticated" && !grants(key.scopes, permission)) {
    const message = `The API key ${key.id} lacks the permission ${permission}.`;
    throw new AppError("permission_denied", message);
  }
}
