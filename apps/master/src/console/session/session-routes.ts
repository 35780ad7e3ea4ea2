import type { KeyObject } from "node:crypto";
import type { IdentityAdapter } from "@heddle/auth/identity/identity-adapter";
import type { CodeSignIn, PendingSignIn } from "@heddle/auth/oidc/code-sign-in";
import { IssuerKeys } from "@heddle/auth/oidc/issuer-keys";
import { readLogoutToken } from "@heddle/auth/oidc/logout-token";
import { AppError, toAppError } from "@heddle/base/errors";
import type { Logger } from "@heddle/observability/logger";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AuthSettings } from "../../config/auth-file.ts";
import { type ConsoleSessions, CSRF_HEADER } from "../../http/identity/console-sessions.ts";
import { consoleClientId, SESSION_PATH } from "../../http/identity/open-authenticator.ts";
import { SealedCookie } from "../../http/identity/sealed-cookie.ts";

type OAuth2 = NonNullable<AuthSettings["oauth2"]>;

/** A sign-in on its way: what the browser must bring back, and where it goes then. */
interface SignInUnderWay extends PendingSignIn {
  readonly to: string;
  readonly untilMs: number;
}

/** How long a user may take at the identity provider. */
const SIGN_IN_MS = 600_000;
/** Paths of the console's pages alone: no other site, and no route of the API. */
const PAGE = /^\/console\/(?!session)[\w\-./?=&%:~]{0,500}$/;
const HOME = "/console/";
const ANY_ORIGIN = "http://console.invalid";
const OPEN = { operation: { permission: "public" } };

/** The sign-in of browsers by code and PKCE; each route is of the console and none of the API. */
export class SessionRoutes {
  readonly #sessions: ConsoleSessions;
  readonly #tokens: IdentityAdapter;
  readonly #oauth2: OAuth2;
  readonly #log: Logger;
  readonly #signIn: CodeSignIn;
  readonly #keys: IssuerKeys;
  readonly #pending: SealedCookie<SignInUnderWay>;
  readonly #clientId: string;

  constructor(
    sessions: ConsoleSessions,
    tokens: IdentityAdapter,
    oauth2: OAuth2,
    pepper: KeyObject,
    log: Logger,
  ) {
    this.#sessions = sessions;
    this.#tokens = tokens;
    this.#oauth2 = oauth2;
    this.#log = log;
    const { issuer, jwks_uri: jwksUri } = oauth2;
    const isSecure = sessions.settings.publicUrl.protocol === "https:";
    this.#clientId = consoleClientId(oauth2);
    this.#signIn = sessions.signIn;
    this.#keys = new IssuerKeys({ issuer, jwksUri, now: () => performance.now() });
    // The browser comes back from another site, so this one is not `Strict`.
    this.#pending = new SealedCookie(pepper, "heddle_sign_in", { isSecure, sameSite: "Lax" });
  }

  serve(instance: FastifyInstance): void {
    const config = OPEN;
    instance.get(SESSION_PATH, { config }, (request, reply) => this.#state(request, reply));
    instance.get(`${SESSION_PATH}/login`, { config }, (request, reply) =>
      this.#login(request, reply),
    );
    instance.get(`${SESSION_PATH}/callback`, { config }, (request, reply) =>
      this.#callback(request, reply),
    );
    instance.post(`${SESSION_PATH}/logout`, { config }, (request, reply) =>
      this.#logout(request, reply),
    );
    const form = { ...OPEN, isUrlencoded: true };
    instance.post(`${SESSION_PATH}/backchannel-logout`, { config: form }, (request, reply) =>
      this.#endedByProvider(request, reply),
    );
  }

  /** What the page needs to begin; no other site can read it. */
  #state({ headers }: FastifyRequest, reply: FastifyReply): object {
    reply.header("cache-control", "no-store");
    const session = this.#sessions.of(headers.cookie, Date.now());
    const state = { sign_in: true, issuer: this.#oauth2.issuer, signed_in: session !== undefined };
    if (!session) return state;
    const expires_at = new Date(session.untilMs).toISOString();
    return { ...state, csrf: this.#sessions.csrfOf(session), expires_at };
  }

  async #login({ query }: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { to } = query as { readonly to?: unknown };
    try {
      const { url, pending } = await this.#signIn.begin();
      const untilMs = Date.now() + SIGN_IN_MS;
      const way = { ...pending, to: pageOf(to), untilMs };
      reply.header("set-cookie", this.#pending.set(way, SIGN_IN_MS / 1_000) ?? []);
      return redirect(reply, url);
    } catch (error) {
      return this.#failed(reply, error);
    }
  }

  async #callback(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const way = this.#pending.read(request.headers.cookie);
    const cleared = this.#pending.clear();
    try {
      if (!way || Date.now() >= way.untilMs) throw refused("it took too long, or began elsewhere");
      const returned = new URL(request.url, this.#sessions.settings.publicUrl);
      const answer = await this.#signIn.finish(returned, way);
      await this.#tokens.verify(answer.accessToken);
      const nowMs = Date.now();
      const session = await this.#sessions.begin(answer, nowMs);
      const cookies = this.#sessions.cookie.set(session, (session.untilMs - nowMs) / 1_000);
      if (!cookies) throw refused("the access token is too large for cookies");
      reply.header("set-cookie", [...cleared, ...cookies]);
      return redirect(reply, way.to);
    } catch (error) {
      reply.header("set-cookie", cleared);
      return this.#failed(reply, error);
    }
  }

  /** Leads back to the console, which says that it failed. */
  #failed(reply: FastifyReply, error: unknown): FastifyReply {
    const { code, message } = toAppError(error);
    this.#log.warn({ code, why: message }, "a sign-in to the console failed");
    return redirect(reply, `${HOME}#sign-in-failed=${code}`);
  }

  async #logout({ headers }: FastifyRequest, reply: FastifyReply): Promise<object> {
    const nowMs = Date.now();
    const session = this.#sessions.of(headers.cookie, nowMs);
    if (session) {
      this.#sessions.checkCsrf(session, headers[CSRF_HEADER]);
      await this.#sessions.end(session, nowMs);
    }
    reply.headers({ "set-cookie": this.#sessions.cookie.clear(), "cache-control": "no-store" });
    const home = new URL(HOME, this.#sessions.settings.publicUrl).href;
    return { logout_url: (await this.#signIn.logoutUrl(home).catch(() => undefined)) ?? null };
  }

  async #endedByProvider(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    reply.header("cache-control", "no-store");
    const form = new URLSearchParams((request.body as Buffer | undefined)?.toString() ?? "");
    const { issuer, algorithms, clock_skew_seconds: clockSkewS } = this.#oauth2;
    const rules = { issuer, clientId: this.#clientId, algorithms, clockSkewS };
    const ended = await readLogoutToken(form.get("logout_token") ?? "", this.#keys.find, rules);
    if (!ended) {
      const message = "The body has no valid `logout_token` of the identity provider.";
      throw new AppError("invalid_value", message, { param: "logout_token" });
    }
    await this.#sessions.endAll(ended, Date.now());
    return reply.code(200).send();
  }
}

/** The asked page, as browsers read its path: without `..` that leads elsewhere. */
function pageOf(to: unknown): string {
  const url = typeof to === "string" ? URL.parse(to, ANY_ORIGIN) : null;
  const page = url?.origin === ANY_ORIGIN ? url.pathname + url.search : "";
  return PAGE.test(page) ? page : HOME;
}

function refused(why: string): AppError {
  return new AppError("invalid_api_key", `The sign-in was not completed: ${why}.`);
}

function redirect(reply: FastifyReply, to: string): FastifyReply {
  reply.headers({ "cache-control": "no-store", "referrer-policy": "no-referrer" });
  return reply.redirect(to, 302);
}
