import type { IdentityAdapter } from "@heddle/auth/identity/identity-adapter";
import type { KeyVerifier } from "@heddle/auth/key-verifier";
import type { Later } from "@heddle/auth/limits/limit-store";
import type { FreshRun } from "@heddle/base/async/fresh-run";
import { AppError } from "@heddle/base/errors";
import type { ApiKeyRecord } from "@heddle/control/state";
import type { FastifyRequest } from "fastify";
import type { InProcessCalls } from "../in-process-calls.ts";
import type { Caller } from "./caller.ts";
import type { AskedRights, CallerResolver } from "./caller-resolver.ts";
import { type ConsoleSessions, CSRF_HEADER } from "./console-sessions.ts";

/** How users prove who they are. */
interface UserProofs {
  readonly tokens: IdentityAdapter | undefined;
  readonly sessions: ConsoleSessions | undefined;
}

/** Finds who calls by the headers of a request. */
export class Authenticator {
  readonly #verifier: KeyVerifier<ApiKeyRecord>;
  readonly #callers: CallerResolver;
  readonly #inProcess: Pick<InProcessCalls, "keyOf">;
  readonly #users: UserProofs;
  readonly #newest: Pick<FreshRun<unknown>, "get">;

  /** `newest` resolves when this master's state holds every change made before the call of it. */
  constructor(
    verifier: KeyVerifier<ApiKeyRecord>,
    callers: CallerResolver,
    inProcess: Pick<InProcessCalls, "keyOf">,
    users: UserProofs,
    newest: Pick<FreshRun<unknown>, "get">,
  ) {
    this.#newest = newest;
    this.#verifier = verifier;
    this.#callers = callers;
    this.#inProcess = inProcess;
    this.#users = users;
  }

  /** Whether the request names a caller at all, known or not. */
  hasCredentials({ raw, headers }: FastifyRequest): boolean {
    const { authorization, "x-api-key": apiKey } = headers;
    return !!authorization || !!apiKey || this.#inProcess.keyOf(raw) !== undefined;
  }

  /** Throws `invalid_api_key` for unknown callers, or rejects with it. */
  callerOf({ raw, headers }: FastifyRequest): Later<Caller> {
    const id = this.#inProcess.keyOf(raw);
    const asked: AskedRights = {
      project: headers["x-heddle-project"] as string | undefined,
      role: headers["x-heddle-role"] as string | undefined,
    };
    if (id !== undefined) return this.#callers.ofKey(known(this.#verifier.verifyId(id)), asked);
    refuseRepeated(raw.rawHeaders);
    const own = this.#sessionToken(headers);
    // Without a token of its session the call names no caller.
    if (own instanceof Promise) {
      return own.then((token) => this.#ofToken(token ?? tokenOf(headers), asked));
    }
    return this.#ofToken(own ?? tokenOf(headers), asked);
  }

  #ofToken(token: string, asked: AskedRights): Later<Caller> {
    const { tokens } = this.#users;
    if (tokens?.recognizes(token)) {
      return tokens.verify(token).then((user) => this.#callers.ofUser(user, asked));
    }
    const verified = this.#verifier.verify(token);
    // It may be new: another master answered the call that made it a moment ago.
    if (!verified.ok && verified.reason === "unknown") return this.#ofNewKey(token, asked);
    return this.#callers.ofKey(known(verified), asked);
  }

  /** The token of a browser's session, for calls that name no other caller. */
  #sessionToken(headers: FastifyRequest["headers"]): Later<string | undefined> {
    const { sessions } = this.#users;
    const { authorization, "x-api-key": apiKey, cookie } = headers;
    if (!sessions || authorization || apiKey) return undefined;
    const session = sessions.of(cookie, Date.now());
    if (!session) return undefined;
    sessions.checkCsrf(session, headers[CSRF_HEADER]);
    return sessions.tokenOf(session);
  }

  async #ofNewKey(token: string, asked: AskedRights): Promise<Caller> {
    await this.#newest.get().catch(() => undefined);
    return this.#callers.ofKey(known(this.#verifier.verify(token)), asked);
  }
}

function known(verified: ReturnType<KeyVerifier<ApiKeyRecord>["verify"]>): ApiKeyRecord {
  if (!verified.ok) throw new AppError("invalid_api_key", verified.message);
  return verified.key;
}

/** Headers of which proxies and this server could read different ones. */
const SINGLE: ReadonlySet<string> = new Set([
  "authorization",
  "x-api-key",
  "x-heddle-project",
  "x-heddle-role",
]);

/** Node keeps the first of two `Authorization` headers, other servers the last. */
function refuseRepeated(rawHeaders: readonly string[]): void {
  const seen: string[] = [];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]?.toLowerCase() ?? "";
    if (!SINGLE.has(name)) continue;
    if (seen.includes(name)) {
      throw new AppError("invalid_api_key", `The header \`${name}\` was sent twice: send it once.`);
    }
    seen.push(name);
  }
}

/**
 * The API key of the headers: a bearer token, or `x-api-key` as Anthropic's clients send it. With
 * two different ones a proxy could have admitted another caller than this server.
 */
export function tokenOf({ authorization, "x-api-key": apiKey }: FastifyRequest["headers"]): string {
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
  if (apiKey && apiKey !== token) {
    const message =
      "The headers `authorization` and `x-api-key` name two callers: send one of them.";
    throw new AppError("invalid_api_key", message);
  }
  return token;
}
