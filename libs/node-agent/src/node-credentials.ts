import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { requestCertificate } from "@heddle/pki/certificate-authority";
import { CertificateRenewal } from "@heddle/pki/certificate-renewal";
import type { NodeRole } from "@heddle/pki/node-name";
import { readMaterial, writeMaterial } from "@heddle/pki/tls-files";
import { TlsIdentity, type TlsMaterial, validityOf } from "@heddle/pki/tls-identity";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { renewMethod } from "@heddle/rpc/proto";
import { type Joined, joinCluster } from "./join-cluster.ts";
import { readEnrollKey } from "./node-flags.ts";

const joinBackoff = { baseMs: 100, maxMs: 3_000 };
const RENEW_DEADLINE_MS = 15_000;
/** Failures between two log lines about missing masters. */
const REPORT_EVERY_FAILURES = 10;

export interface EnrolOptions {
  readonly dataDirectory: string;
  readonly role: NodeRole;
  readonly name: string;
  /** host:port of the masters that are known by now. */
  readonly masters: () => readonly string[];
  /** Needed if the data directory has no valid certificate. */
  readonly joinToken: string | undefined;
  /** In place of a token: the file with a key by which any number of nodes join. */
  readonly enrollKeyFile?: string | undefined;
  readonly log: Log;
}

/** Credentials that renew themselves until `close`. */
export interface RunningCredentials extends NodeCredentials {
  close(): void;
}

/**
 * A node's certificate: that of its last start, or a new one for its join token. Retries while no
 * master answers; rejects if the token is refused, or is missing and needed.
 */
export async function nodeCredentials(options: EnrolOptions): Promise<RunningCredentials> {
  const { dataDirectory, log } = options;
  const material = (await readMaterial(dataDirectory)) ?? (await firstMaterial(options));
  const tls = new TlsIdentity(material);
  const renewal = new CertificateRenewal(tls, () => renewed(options, tls), log);
  return { clusterToken: "", tls, close: () => renewal.close() };
}

async function firstMaterial(options: EnrolOptions): Promise<TlsMaterial> {
  const { material } = await joinAny(options);
  await writeMaterial(options.dataDirectory, material);
  return material;
}

/** Joins through the first master that answers; rejects as joinCluster does. */
export async function joinAny(options: EnrolOptions): Promise<Joined> {
  const { masters, role, name, log, enrollKeyFile } = options;
  const token = options.joinToken ?? (enrollKeyFile && readEnrollKey(enrollKeyFile));
  if (!token) {
    const message = `${options.dataDirectory} has no valid certificate, which TLS between nodes needs (on with --tls, and beyond loopback without --insecure-nodes). Give --join-token-file FILE with a new token: heddle cluster join-token --role ${role} --name ${name} > FILE${enrollKeyFile ? `. ${enrollKeyFile}, the --enroll-key-file, does not exist or is empty` : ""}`;
    throw new AppError("invalid_value", message);
  }
  let rounds = 0;
  const joinOnce = async () => {
    rounds++;
    let failure: unknown = new AppError("unavailable", "no master is known");
    for (const master of masters()) {
      try {
        return await joinCluster({ master, token, role, name });
      } catch (error) {
        if (!isAway(error)) throw error;
        failure = error;
        const { message } = toAppError(error);
        if (rounds % REPORT_EVERY_FAILURES === 0)
          log.warn({ master, error: message }, "not joined yet");
      }
    }
    throw failure;
  };
  return await retry(joinOnce, { backoff: joinBackoff, isPassing: isAway });
}

/** Whether a master could not be asked, and may answer later. */
function isAway(error: unknown): boolean {
  const { code } = toAppError(error);
  return code === "unavailable" || code === "deadline_exceeded" || code === "overloaded";
}

/** With an enrolment key a node whose certificate has expired while it runs joins again. */
async function renewed(options: EnrolOptions, tls: TlsIdentity): Promise<TlsMaterial> {
  const isExpired = validityOf(tls.material.certificate).untilMs <= Date.now();
  if (isExpired && options.enrollKeyFile !== undefined) return firstMaterial(options);
  return renewedByOld(options, tls);
}

async function renewedByOld(
  { masters, dataDirectory }: EnrolOptions,
  tls: TlsIdentity,
): Promise<TlsMaterial> {
  const { privateKey, csr } = await requestCertificate();
  let failure: unknown = new AppError("unavailable", "no master is known");
  for (const master of masters()) {
    const peer = new Peer(master, { clusterToken: "", tls });
    try {
      const { certificate } = await peer.unary(
        renewMethod,
        { csr },
        { deadlineMs: RENEW_DEADLINE_MS },
      );
      const material = { authority: tls.material.authority, certificate, privateKey };
      await writeMaterial(dataDirectory, material);
      return material;
    } catch (error) {
      failure = error;
    } finally {
      peer.close();
    }
  }
  throw failure;
}
