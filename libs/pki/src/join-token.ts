import { createHash, randomBytes } from "node:crypto";
import { AppError } from "@heddle/base/errors";

/** What a node needs to join: the trusted authority, and a secret, or a key with `cluster:enroll`. */
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

/** Throws `invalid_value` for an invalid token without repeating its text. */
export function parseJoinToken(text: string): JoinToken {
  const [, authorityHash, secret] = FORM.exec(text.trim()) ?? [];
  if (authorityHash !== undefined && secret !== undefined) {
    return { authorityHash: authorityHash === NO_TLS ? undefined : authorityHash, secret };
  }
  const message =
    "the join token or enrolment key is not of the form hdlj_HASH::SECRET; make one: heddle cluster join-token, heddle cluster enroll, or for a master heddle cluster add";
  throw new AppError("invalid_value", message);
}

/** 256 random bits. */
export function newJoinSecret(): string {
  return randomBytes(32).toString("base64url");
}

/** The id under which the masters store a secret, which they receive only when it is used. */
export function joinSecretId(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}
