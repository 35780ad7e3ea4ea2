import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import type { CodeSignIn, RenewedTokens } from "@heddle/auth/oidc/code-sign-in";
import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import type { SessionTokens } from "@heddle/control/access/records";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose, refusalError } from "../../control-plane/propose.ts";

/** A session whose tokens are kept here: its name in the state, and what opens them. */
export interface RenewedSession {
  readonly name: string;
  /** Base64; only the browser's cookie has it. */
  readonly key: string;
  readonly subject: string;
}

interface Tokens extends RenewedTokens {
  readonly fromMs: number;
}

/** How long before its end a token is renewed, but at most a third of its life. */
const EARLY_MS = 60_000;
/** Longer than the provider may take. */
const CLAIM_MS = 20_000;
const WAIT_MS = 15_000;
const BACKOFF = { baseMs: 100, maxMs: 1_000 };
const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
const IV_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Access tokens of browsers' sessions that the identity provider renews.
 * - The state has them as ciphertext under a key that is in the browser's cookie alone.
 * - A refresh token is used once: the master that claims a version renews it, others wait.
 */
export class SessionRenewal {
  readonly #control: ControlPlane;
  readonly #signIn: Pick<CodeSignIn, "renew">;
  /** Keyed by session: renewals of this master. */
  readonly #running = new Map<string, Promise<string | undefined>>();

  constructor(control: ControlPlane, signIn: Pick<CodeSignIn, "renew">) {
    this.#control = control;
    this.#signIn = signIn;
  }

  /** Keeps the tokens of a new session until then; resolves with the key that opens them. */
  async keep(name: string, tokens: RenewedTokens, forgetAtMs: number): Promise<string> {
    const key = randomBytes(KEY_BYTES).toString("base64");
    await this.#put({ name, key }, tokens, { version: 0, forgetAtMs });
    return key;
  }

  /** An access token that is valid now; undefined where the provider has ended the session. */
  async tokenOf(session: RenewedSession): Promise<string | undefined> {
    const record = this.#control.state.sessionTokens.get(session.name);
    const tokens = record && opened(record, session);
    if (tokens && !isDue(tokens)) return tokens.accessToken;
    const running = this.#running.get(session.name) ?? this.#renewed(session);
    this.#running.set(session.name, running);
    return running;
  }

  #renewed(session: RenewedSession): Promise<string | undefined> {
    const isPassing = (error: unknown) => toAppError(error).code === "conflict";
    return retry(() => this.#renew(session), {
      backoff: BACKOFF,
      deadlineMs: WAIT_MS,
      isPassing,
      lateError: () => new AppError("unavailable", "The session is being renewed. Try again."),
    }).finally(() => this.#running.delete(session.name));
  }

  /** Throws `conflict` where another master renews the session. */
  async #renew(session: RenewedSession): Promise<string | undefined> {
    // Another master may have renewed or ended it.
    await this.#control.group?.readBarrier();
    const { name, subject } = session;
    const record = this.#control.state.sessionTokens.get(name);
    if (!record) return undefined;
    const tokens = opened(record, session);
    if (!tokens) return undefined;
    if (!isDue(tokens)) return tokens.accessToken;
    const { version, forgetAtMs } = record;
    const atMs = Date.now();
    const claim = { type: "session.claim", atMs, name, version, untilMs: atMs + CLAIM_MS } as const;
    const isValid = () => Date.now() < tokens.expiresAtMs;
    const claimed = await this.#control.propose(claim);
    if (!claimed.ok && isValid()) return tokens.accessToken;
    if (!claimed.ok) throw refusalError(claimed);
    try {
      const renewed = await this.#signIn.renew(tokens.refreshToken, subject);
      if (!renewed) return await this.#drop(name);
      await this.#put(session, renewed, { version, forgetAtMs });
      return renewed.accessToken;
    } catch (error) {
      if (isValid()) return tokens.accessToken;
      throw error;
    }
  }

  async #drop(name: string): Promise<undefined> {
    await propose(this.#control, { type: "session.drop", atMs: Date.now(), name });
    return undefined;
  }

  async #put(
    { name, key }: Pick<RenewedSession, "name" | "key">,
    tokens: RenewedTokens,
    { version, forgetAtMs }: Pick<SessionTokens, "version" | "forgetAtMs">,
  ): Promise<void> {
    const atMs = Date.now();
    const sealed = sealedAs({ ...tokens, fromMs: atMs }, { name, key });
    const command = { type: "session.keep", atMs, name, sealed, version, forgetAtMs } as const;
    await propose(this.#control, command);
  }
}

function isDue({ fromMs, expiresAtMs }: Tokens): boolean {
  const earlyMs = Math.min(EARLY_MS, Math.max(0, expiresAtMs - fromMs) / 3);
  return Date.now() >= expiresAtMs - earlyMs;
}

function sealedAs(tokens: Tokens, { name, key }: Pick<RenewedSession, "name" | "key">): string {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv(CIPHER, Buffer.from(key, "base64"), iv);
  cipher.setAAD(Buffer.from(name));
  const text = Buffer.concat([cipher.update(JSON.stringify(tokens)), cipher.final()]);
  return Buffer.concat([iv, cipher.getAuthTag(), text]).toString("base64");
}

/** Undefined for a record that is not of this session. */
function opened(
  { sealed }: Pick<SessionTokens, "sealed">,
  { name, key }: Pick<RenewedSession, "name" | "key">,
): Tokens | undefined {
  const bytes = Buffer.from(sealed, "base64");
  try {
    const iv = bytes.subarray(0, IV_BYTES);
    const decipher = createDecipheriv(CIPHER, Buffer.from(key, "base64"), iv);
    decipher.setAAD(Buffer.from(name));
    decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
    const text = decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES));
    return JSON.parse(Buffer.concat([text, decipher.final()]).toString()) as Tokens;
  } catch {
    return undefined;
  }
}
