import type { KeyVerifier } from "@heddle/auth/key-verifier";
import type { RateReservation } from "@heddle/auth/rate-limiter";
import { grants } from "@heddle/auth/scopes";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ApiKeyRecord } from "@heddle/control/state";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { InProcessCalls } from "./in-process-calls.ts";
import type { LastUsed } from "./last-used.ts";
import type { KeyLimiter } from "./limits/key-limiter.ts";

/** A request after the access check; both are null on public routes only. */
export interface CallerRequest extends FastifyRequest {
  /** The caller's key. */
  apiKey: ApiKeyRecord | null;
  /**
   * The call's share of its key's limits; released with the answer unless tokens are reserved in
   * it.
   */
  reservation: RateReservation | null;
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
  readonly #limits: KeyLimiter;
  readonly #onLimited: OnLimited;
  readonly #inProcess: Pick<InProcessCalls, "keyOf">;

  constructor(
    verifier: KeyVerifier<ApiKeyRecord>,
    lastUsed: LastUsed,
    limits: KeyLimiter,
    onLimited: OnLimited,
    inProcess: Pick<InProcessCalls, "keyOf">,
  ) {
    this.#verifier = verifier;
    this.#lastUsed = lastUsed;
    this.#limits = limits;
    this.#onLimited = onLimited;
    this.#inProcess = inProcess;
  }

  /** The check for routes that need a permission; it throws the refusal. */
  of(permission: string | undefined): (request: CallerRequest, reply: FastifyReply) => void {
    if (permission === "public") return () => undefined;
    return (request, reply) => {
      const key = this.#authenticate(request);
      const reservation = this.#admit(key, permission, reply);
      reply.raw.once("close", () => {
        if (reservation.reservedTokens === 0) reservation.finish(0);
      });
      authorize(key, permission);
      request.apiKey = key;
      request.reservation = reservation;
      this.#lastUsed.touch(key.id);
    };
  }

  /** From here on the call counts against its key's limits, whatever its result. */
  #admit(key: ApiKeyRecord, permission: string | undefined, reply: FastifyReply): RateReservation {
    try {
      return this.#limits.admit(key);
    } catch (thrown) {
      reply.headers(this.#limits.headersOf(key));
      this.#onLimited(permission, toAppError(thrown));
      throw thrown;
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
