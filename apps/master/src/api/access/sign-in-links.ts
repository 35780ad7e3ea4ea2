import { createHash, randomBytes } from "node:crypto";

const LIFETIME_MS = 3_600_000;
const CODE_BYTES = 32;
/** Beyond it the oldest link ends. */
const MAX_LINKS = 100;

interface PendingLink {
  readonly token: string;
  readonly expiresAtMs: number;
}

/**
 * The unredeemed links of this master, in its memory alone. A code is kept as its digest, so that the time of
 * a look-up shows nothing of it.
 */
export class SignInLinks {
  readonly #pending = new Map<string, PendingLink>();

  /** A link that hands the token over. */
  create(token: string, nowMs: number): { readonly code: string; readonly expiresAtMs: number } {
    this.#dropOld(nowMs);
    const code = randomBytes(CODE_BYTES).toString("base64url");
    const expiresAtMs = nowMs + LIFETIME_MS;
    this.#pending.set(digestOf(code), { token, expiresAtMs });
    return { code, expiresAtMs };
  }

  /** The token of a link, once; undefined for a code that is used, old or unknown. */
  redeem(code: string, nowMs: number): string | undefined {
    const digest = digestOf(code);
    const link = this.#pending.get(digest);
    this.#pending.delete(digest);
    return link && nowMs < link.expiresAtMs ? link.token : undefined;
  }

  #dropOld(nowMs: number): void {
    for (const [digest, { expiresAtMs }] of this.#pending) {
      const isFull = this.#pending.size >= MAX_LINKS;
      if (nowMs >= expiresAtMs || isFull) this.#pending.delete(digest);
    }
  }
}

function digestOf(code: string): string {
  return createHash("sha256").update(code).digest("hex");
}
