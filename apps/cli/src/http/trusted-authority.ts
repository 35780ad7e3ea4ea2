import { X509Certificate } from "node:crypto";
import * as tls from "node:tls";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";

const WANTED = "a PEM file with the authority of the master's certificate";

/** Has all HTTPS of this process trust the file's authorities, beside those of Node. */
export function trustAuthority(file: string, source: string): void {
  const pem = readFlagFile(source, file, WANTED);
  try {
    // Node takes any text here, and would say at each call that the certificate is not trusted.
    new X509Certificate(pem);
    tls.setDefaultCACertificates([...tls.getCACertificates("default"), pem]);
  } catch (cause) {
    const why = (cause as Error).message;
    const message = `${source} ${file} holds no certificate (${why}). Give ${WANTED}.`;
    throw new AppError("invalid_value", message, { cause });
  }
}
