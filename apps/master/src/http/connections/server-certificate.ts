import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import type { CertificateFiles } from "../../config/config.ts";

/** A certificate with its chain and its key, which belong together. */
export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
  /** When it expires, in ms since 1970. */
  readonly untilMs: number;
}

/** The oldest version of TLS that is spoken. */
export const MIN_TLS = "TLSv1.2";

/** A chain of certificates is some kB; what is larger is another file. */
const MAX_PEM_BYTES = 1_048_576;
const CERT_FLAG = "--http-cert-file";
const KEY_FLAG = "--http-key-file";

/**
 * Reads the pair. Throws `invalid_value` with the file and what is wrong with it. An expired
 * certificate is no fault: a master without HTTPS is worse than a warning of clients.
 */
export function readServerCertificate(files: CertificateFiles): ServerCertificate {
  const { certificateFile, keyFile } = files;
  const cert = readPem(CERT_FLAG, certificateFile, "the certificate of the HTTP API as PEM");
  const key = readPem(KEY_FLAG, keyFile, "the private key of the HTTP API's certificate as PEM");
  const first = certificateOf(cert, certificateFile);
  if (!first.checkPrivateKey(privateKeyOf(key, keyFile))) {
    const message = `${KEY_FLAG} ${keyFile} is not the key of the first certificate in ${CERT_FLAG} ${certificateFile} (${first.subject || first.subjectAltName}). Give the key with which it was requested, and the server's certificate before those of its authorities.`;
    throw new AppError("invalid_value", message);
  }
  try {
    createSecureContext({ cert, key, minVersion: MIN_TLS });
  } catch (cause) {
    const message = `TLS refuses ${CERT_FLAG} ${certificateFile} with ${KEY_FLAG} ${keyFile}: ${(cause as Error).message}.`;
    throw new AppError("invalid_value", message, { cause });
  }
  return { cert, key, untilMs: first.validToDate.getTime() };
}

function readPem(flag: string, path: string, wanted: string): string {
  const text = readFlagFile(flag, path, wanted);
  if (text.length <= MAX_PEM_BYTES) return text;
  throw new AppError("invalid_value", `${flag} ${path} has more than 1 MiB. Give ${wanted}.`);
}

function certificateOf(text: string, path: string): X509Certificate {
  try {
    return new X509Certificate(text);
  } catch (cause) {
    const message = `${CERT_FLAG} ${path} holds no certificate as PEM (-----BEGIN CERTIFICATE-----).`;
    throw new AppError("invalid_value", message, { cause });
  }
}

function privateKeyOf(text: string, path: string): KeyObject {
  try {
    return createPrivateKey(text);
  } catch (cause) {
    const isEncrypted = text.includes("ENCRYPTED");
    const message = isEncrypted
      ? `${KEY_FLAG} ${path} is encrypted with a passphrase. Give the key without one (openssl pkey -in ${path}), readable by the master's user only.`
      : `${KEY_FLAG} ${path} holds no private key as PEM (-----BEGIN PRIVATE KEY-----).`;
    throw new AppError("invalid_value", message, { cause });
  }
}
