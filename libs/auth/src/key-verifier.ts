import { type KeyObject, timingSafeEqual } from "node:crypto";
import { BoundedMap } from "@heddle/base/collections/bounded-map";
import { hashApiKey, parseApiKey } from "./api-key.ts";

/** The fields of a stored key for its verification; times in milliseconds since the epoch. */
export interface StoredKey {
  readonly id: string;
  readonly hash: string;
  readonly expiresAtMs?: number | undefined;
  readonly revokedAtMs?: number | undefined;
}

export type Verification<K> =
  | { readonly ok: true; readonly key: K }
  | {
      readonly ok: false;
      readonly reason: "malformed" | "checksum" | "unknown" | "revoked" | "expired" | "disabled";
      readonly message: string;
    };

export interface KeyVerifierOptions<K> {
  readonly lookup: (id: string) => K | undefined;
  readonly pepper: KeyObject;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Whether the service account of the key is disabled. */
  readonly isDisabled: (key: K) => boolean;
}

/** Verified texts that are cached, so that a busy key is hashed once; the oldest is evicted. */
const MAX_REMEMBERED = 10_000;

/**
 * Finds the record of a key's text. Only the hash of a text is cached: the record is read on every
 * call, so revocation and expiry apply at once.
 */
export class KeyVerifier<K extends StoredKey> {
  readonly #options: KeyVerifierOptions<K>;
  readonly #remembered = new BoundedMap<string, { readonly id: string; readonly hash: string }>(
    MAX_REMEMBERED,
  );

  constructor(options: KeyVerifierOptions<K>) {
    this.#options = options;
  }

  /** Compares in constant time; never throws. */
  verify(text: string): Verification<K> {
    const known = this.#remembered.get(text);
    if (known) {
      const key = this.#options.lookup(known.id);
      if (key && key.hash === known.hash) return this.#checkLife(key);
      this.#remembered.delete(text);
    }
    return this.#verifyUnknown(text);
  }

  /** Whether the key may be used, where its text is not needed. */
  verifyId(id: string): Verification<K> {
    const key = this.#options.lookup(id);
    return key ? this.#checkLife(key) : refuse("unknown", `hdl_*_${id}_`);
  }

  #verifyUnknown(text: string): Verification<K> {
    const parsed = parseApiKey(text);
    if (!parsed.ok) return refuse(parsed.reason, text);
    const key = this.#options.lookup(parsed.id);
    const hash = hashApiKey(text, this.#options.pepper);
    if (!key || !sameHash(hash, key.hash)) return refuse("unknown", text);
    this.#remembered.set(text, { id: key.id, hash });
    return this.#checkLife(key);
  }

  #checkLife(key: K): Verification<K> {
    if (key.revokedAtMs !== undefined) return refuse("revoked", `hdl_*_${key.id}_`);
    if (key.expiresAtMs !== undefined && key.expiresAtMs <= this.#options.now()) {
      return refuse("expired", `hdl_*_${key.id}_`);
    }
    if (this.#options.isDisabled(key)) return refuse("disabled", `hdl_*_${key.id}_`);
    return { ok: true, key };
  }
}

const MESSAGES = {
  malformed: "is not of the form hdl_<environment>_<id>_<secret>. Copy the whole key again.",
  checksum: "is mistyped: its checksum does not match. Copy the whole key again.",
  unknown: "is well formed but unknown to this cluster. Check the endpoint, or ask for a key.",
  revoked: "has been revoked. Ask an administrator for a new key.",
  disabled: "belongs to a service account that is disabled. Ask an administrator to enable it.",
  expired: "has expired. Ask an administrator for a new key.",
} as const;

/** Starts as OpenAI's message does, because clients match it. */
function refuse(reason: keyof typeof MESSAGES, text: string): Verification<never> {
  return {
    ok: false,
    reason,
    message: `Incorrect API key provided: ${masked(text)}. It ${MESSAGES[reason]}`,
  };
}

/** At most the part before the secret, so that no message contains one. */
function masked(text: string): string {
  const shown = /^hdl_[a-z0-9*]{1,16}_[0-9A-Za-z]{8}_/.exec(text)?.[0] ?? text.slice(0, 4);
  return `\`${shown.replace(/[^\x20-\x7e]/g, "?")}...\``;
}

function sameHash(left: string, right: string): boolean {
  const a = Buffer.from(left, "hex");
  const b = Buffer.from(right, "hex");
  return a.length === b.length && timingSafeEqual(a, b);
}
