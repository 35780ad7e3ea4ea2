import { randomBytes } from "node:crypto";
import { createApiKey } from "@heddle/auth/api-key";
import { authorityHash, createAuthority } from "@heddle/pki/certificate-authority";
import { formatJoinToken } from "@heddle/pki/join-token";
import { formatAuthority, parseAuthority } from "@heddle/pki/tls-files";

const SECRETS_KEY_BYTES = 32;

/** The files of a new cluster's secrets: the keys of its Secret in Kubernetes. */
export const SECRET_NAMES = ["ca.pem", "bootstrap-key", "secrets-key"] as const;
/** The key by which nodes join: also made where the others exist, since earlier versions had none. */
export const ENROLL_KEY = "enroll-key";

export type Secrets = Record<(typeof SECRET_NAMES)[number] | typeof ENROLL_KEY, string>;

/** An authority, a first administrator's key, a key that encrypts the state, one to join by. */
export async function newSecrets(): Promise<Secrets> {
  const authority = formatAuthority(await createAuthority());
  return {
    "ca.pem": authority,
    "bootstrap-key": `${createApiKey("live").text}\n`,
    "secrets-key": `${randomBytes(SECRETS_KEY_BYTES).toString("base64")}\n`,
    [ENROLL_KEY]: newEnrollKey(authority, "ca.pem"),
  };
}

/** `where` is where the authority's text is from, for the message about a faulty one. */
export function newEnrollKey(authority: string, where: string): string {
  const { certificate } = parseAuthority(authority, where);
  const secret = createApiKey("live").text;
  return `${formatJoinToken({ authorityHash: authorityHash(certificate), secret })}\n`;
}
