import { randomBytes } from "node:crypto";
import { createApiKey } from "@heddle/auth/api-key";
import { createAuthority } from "@heddle/pki/certificate-authority";
import { formatAuthority } from "@heddle/pki/tls-files";

const SECRETS_KEY_BYTES = 32;

/** The files of a new cluster's secrets: the keys of its Secret in Kubernetes. */
export const SECRET_NAMES = ["ca.pem", "bootstrap-key", "secrets-key"] as const;

/** A certificate authority, a first administrator's key, and a key that encrypts the state. */
export async function newSecrets(): Promise<Record<(typeof SECRET_NAMES)[number], string>> {
  return {
    "ca.pem": formatAuthority(await createAuthority()),
    "bootstrap-key": `${createApiKey("live").text}\n`,
    "secrets-key": `${randomBytes(SECRETS_KEY_BYTES).toString("base64")}\n`,
  };
}
