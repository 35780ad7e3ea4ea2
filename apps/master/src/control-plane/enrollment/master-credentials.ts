import { AppError } from "@heddle/base/errors";
import { readFlagFileIfThere } from "@heddle/base/flag-file";
import type { SecretKeys } from "@heddle/base/secret-keys";
import { joinAny, type RunningCredentials } from "@heddle/node-agent/node-credentials";
import type { Log } from "@heddle/observability/logger";
import {
  type CertificateAuthority,
  requestCertificate,
  signNode,
} from "@heddle/pki/certificate-authority";
import { CertificateRenewal } from "@heddle/pki/certificate-renewal";
import {
  encryptAuthority,
  ensureAuthority,
  keepAuthority,
  readAuthority,
  readMaterial,
  writeMaterial,
} from "@heddle/pki/tls-files";
import { TlsIdentity, type TlsMaterial } from "@heddle/pki/tls-identity";

export interface MasterTlsOptions {
  readonly dataDirectory: string;
  readonly name: string;
  /** Holds the authority's key and certificate; created by the first master of a new cluster. */
  readonly authorityFile: string;
  readonly joinTokenFile: string | undefined;
  /** host:port of the other masters. */
  readonly others: readonly string[];
  readonly certificateLifetimeMs: number;
  /** The keys that encrypt this master's files. */
  readonly keys: SecretKeys;
  readonly log: Log;
}

/** A master's credentials, and the authority that signs those of others. */
export interface MasterTls {
  readonly credentials: RunningCredentials;
  readonly authority: CertificateAuthority;
}

/**
 * Obtains a master's certificate. It has the authority's key from its file or through a join token.
 * It signs its own certificate at the start and before each expiry.
 */
export async function openMasterTls(options: MasterTlsOptions): Promise<MasterTls> {
  const { dataDirectory, authorityFile, keys, log } = options;
  const authority = await findAuthority(options);
  if (keys.ids.length > 0 && !(await encryptAuthority(authorityFile, keys))) {
    log.warn(
      { authorityFile },
      "this file cannot be written and is not encrypted with the secrets key",
    );
  }
  const kept = await readMaterial(dataDirectory, keys);
  const isOurs = kept?.authority.trim() === authority.certificate.trim();
  const tls = new TlsIdentity(kept && isOurs ? kept : await selfSigned(options, authority));
  const renewal = new CertificateRenewal(tls, () => selfSigned(options, authority), log);
  return { authority, credentials: { clusterToken: "", tls, close: () => renewal.close() } };
}

async function findAuthority(options: MasterTlsOptions): Promise<CertificateAuthority> {
  const { authorityFile, joinTokenFile, others, name, dataDirectory, keys, log } = options;
  const known = await readAuthority(authorityFile, keys);
  if (known) return known;
  const joinToken = readJoinToken(joinTokenFile);
  if (joinToken !== undefined) {
    const node = { dataDirectory, role: "master" as const, name, joinToken, log };
    const { authority } = await joinAny({ ...node, masters: () => others });
    if (!authority) throw new AppError("server_error", "the master sent no key of the authority");
    return keepAuthority(authorityFile, authority, keys);
  }
  // Several masters that each created one could never agree.
  if (others.length === 0) return ensureAuthority(authorityFile, keys);
  const message = `${authorityFile} is missing: copy it from another master, or join with --join-token-file (heddle cluster add ${name})`;
  throw new AppError("invalid_value", message);
}

/** Undefined where there is no file, or nothing in it: an administrator may add this master later. */
export function readJoinToken(path: string | undefined): string | undefined {
  const wanted = "the file that `heddle cluster add` wrote, or one that does not exist yet";
  return (path && readFlagFileIfThere("--join-token-file", path, wanted)?.trim()) || undefined;
}

async function selfSigned(
  { dataDirectory, name, certificateLifetimeMs, keys }: MasterTlsOptions,
  authority: CertificateAuthority,
): Promise<TlsMaterial> {
  const { privateKey, csr } = await requestCertificate();
  const node = { role: "master" as const, name };
  const certificate = await signNode(authority, csr, node, certificateLifetimeMs);
  const material = { authority: authority.certificate, certificate, privateKey };
  await writeMaterial(dataDirectory, material, keys);
  return material;
}
