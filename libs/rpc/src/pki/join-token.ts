import { createHash, randomBytes } from "node:crypto";
import { AppError } from "@heddle/base/errors";

/** What a node needs to join: whom to trust, and what proves that it may. */
export interface JoinToken {
  /** SHA-256 of the authority's certificate, 64 hexadecimal digits; undefined without TLS. */
  readonly authorityHash: string | undefined;
  readonly secret: string;
}

const FORM = /^hdlj_([0-9a-f]{64}|plain)::([\x21-\x7e]{16,512})$/;
const NO_TLS = "plain";

export function formatJoinToken({ authorityHash, secret }: JoinToken): string {
  return `hdlj_${authorityHash ?? NO_TLS}::${secret}`;
}

/** Throws `invalid_value` for a text that is none; the text itself is not repeated. */
export function parseJoinToken(text: string): JoinToken {
  const [, authorityHash, secret] = FORM.exec(text.trim()) ?? [];
  if (authorityHash !== undefined && secret !== undefined) {
    return { authorityHash: authorityHash === NO_TLS ? undefined : authorityHash, secret };
  }
  const message =
    "the join token is not of the form hdlj_HASH::SECRET; make one: heddle cluster add";
  throw new AppError("invalid_value", message);
}

/** 256 bits, so that nobody guesses it. */
export function newJoinSecret(): string {
  return randomBytes(32).toString("base64url");
}

/** Under what the masters keep a secret that they know only until it is used. */
export function joinSecretId(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}
