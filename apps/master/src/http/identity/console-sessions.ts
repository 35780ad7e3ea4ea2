import { createHash, createHmac, type KeyObject, randomBytes, timingSafeEqual } from "node:crypto";
import type { Later } from "@heddle/auth/limits/limit-store";
import type { CodeAnswer, CodeSignIn } from "@heddle/auth/oidc/code-sign-in";
import type { EndedSessions } from "@heddle/auth/oidc/logout-token";
import { AppError } from "@heddle/base/errors";
import { ENDS_SESSIONS, RENEWS_SESSIONS, versionOf } from "@heddle/control/cluster-version";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import { SealedCookie } from "./sealed-cookie.ts";
import { SessionRenewal } from "./session-renewal.ts";

/** The session of a browser, which is in its cookie alone. */
export interface BrowserSession {
  readonly id: string;
  /** The access token; it is checked for each call, as one that a program sends. */
  readonly token: string;
  /** What opens the tokens that the masters renew, which take the place of `token`. */
  readonly key?: string | undefined;
  readonly subject: string;
  readonly sid: string | undefined;
  readonly beganMs: number;
  readonly untilMs: number;
}

export interface ConsoleSettings {
  /** Where browsers find the console. */
  readonly publicUrl: URL;
  readonly maxSessionMs: number;
}

/** The header that proves that a page of the console sends a call with the cookie. */
export const CSRF_HEADER = "x-heddle-csrf";
const ID_BYTES = 16;
const SKEW_MS = 300_000;

/**
 * Sessions of browsers that signed in with the identity provider.
 * - Every master reads every session: they share the key, and the state has those that were ended.
 * - A call counts only with the session's own token in a header, which no other site can send.
 */
export class ConsoleSessions {
  readonly settings: ConsoleSettings;
  readonly cookie: SealedCookie<BrowserSession>;
  readonly signIn: CodeSignIn;
  readonly #control: ControlPlane;
  readonly #pepper: KeyObject;
  readonly #renewal: SessionRenewal;

  constructor(
    settings: ConsoleSettings,
    signIn: CodeSignIn,
    control: ControlPlane,
    pepper: KeyObject,
  ) {
    this.settings = settings;
    this.signIn = signIn;
    this.#renewal = new SessionRenewal(control, signIn);
    this.#control = control;
    this.#pepper = pepper;
    const isSecure = settings.publicUrl.protocol === "https:";
    this.cookie = new SealedCookie(pepper, "heddle_session", { isSecure, sameSite: "Strict" });
  }

  /** Throws `unavailable` while some masters could not end what begins here. */
  async begin(answer: CodeAnswer, nowMs: number): Promise<BrowserSession> {
    const { accessToken, subject, sid, expiresAtMs, refreshToken } = answer;
    if (versionOf(this.#control.state) < ENDS_SESSIONS) {
      const message =
        "Browsers sign in with the identity provider when all masters run this build. Paste an API key until then.";
      throw new AppError("unavailable", message);
    }
    const longest = nowMs + this.settings.maxSessionMs;
    const id = randomBytes(ID_BYTES).toString("hex");
    const fields = { id, subject, sid, beganMs: nowMs };
    const isRenewed = versionOf(this.#control.state) >= RENEWS_SESSIONS;
    if (isRenewed && refreshToken !== undefined && expiresAtMs !== undefined) {
      const tokens = { accessToken, refreshToken, expiresAtMs };
      const key = await this.#renewal.keep(nameOf("session", id), tokens, longest);
      return { ...fields, token: "", key, untilMs: longest };
    }
    return { ...fields, token: accessToken, untilMs: Math.min(longest, expiresAtMs ?? longest) };
  }

  /** The session of a request's cookies; undefined if it has none that is still open. */
  of(cookies: string | undefined, nowMs: number): BrowserSession | undefined {
    const session = this.cookie.read(cookies);
    if (!session || nowMs >= session.untilMs) return undefined;
    const { endedSessions } = this.#control.state;
    const isEnded = namesOf(session).some(
      (name) => (endedSessions.get(name)?.beganUntilMs ?? 0) >= session.beganMs,
    );
    return isEnded ? undefined : session;
  }

  /** The session's access token; undefined where its provider has ended it. */
  tokenOf({ id, token, key, subject }: BrowserSession): Later<string | undefined> {
    if (key === undefined) return token;
    return this.#renewal.tokenOf({ name: nameOf("session", id), key, subject });
  }

  csrfOf({ id }: Pick<BrowserSession, "id">): string {
    return createHmac("sha256", this.#pepper).update(`console csrf ${id}`).digest("base64url");
  }

  /** Throws `permission_denied` for a call that no page of the console has sent. */
  checkCsrf(session: BrowserSession, given: string | readonly string[] | undefined): void {
    const expected = Buffer.from(this.csrfOf(session));
    const bytes = Buffer.from(typeof given === "string" ? given : "");
    if (bytes.length === expected.length && timingSafeEqual(bytes, expected)) return;
    const message = `The header ${CSRF_HEADER} is missing or wrong: calls with the console's cookie need it. Reload the page.`;
    throw new AppError("permission_denied", message, { param: CSRF_HEADER });
  }

  /** Ends one session, as its user asks. */
  async end({ id }: Pick<BrowserSession, "id">, nowMs: number): Promise<void> {
    await this.#end([nameOf("session", id)], nowMs);
  }

  /** Ends what the identity provider has ended: a session of its own, or all of a subject. */
  async endAll({ sid, subject, atMs }: EndedSessions, nowMs: number): Promise<void> {
    // A session of the provider never comes back; a subject may sign in again.
    if (sid !== undefined) await this.#end([nameOf("sid", sid)], nowMs, Number.MAX_SAFE_INTEGER);
    else if (subject !== undefined)
      await this.#end([nameOf("subject", subject)], nowMs, atMs + 999);
  }

  async #end(names: readonly string[], atMs: number, beganUntilMs = atMs): Promise<void> {
    const forgetAtMs = atMs + this.settings.maxSessionMs + SKEW_MS;
    await propose(this.#control, { type: "session.end", atMs, names, beganUntilMs, forgetAtMs });
  }
}

/** What ends a session, as hashes. */
function namesOf({ id, sid, subject }: BrowserSession): string[] {
  const names = [nameOf("session", id), nameOf("subject", subject)];
  return sid === undefined ? names : [...names, nameOf("sid", sid)];
}

function nameOf(kind: "session" | "sid" | "subject", text: string): string {
  return createHash("sha256").update(`${kind} ${text}`).digest("hex");
}
