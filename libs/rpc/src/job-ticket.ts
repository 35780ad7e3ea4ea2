import { createHmac, sign, timingSafeEqual, verify, X509Certificate } from "node:crypto";
import { BoundedMap } from "@heddle/base/collections/bounded-map";
import { AppError } from "@heddle/base/errors";
import { domainOf } from "@heddle/pki/certificate-authority";
import { nodeNameOf } from "@heddle/pki/node-name";
import type { TlsIdentity } from "@heddle/pki/tls-identity";

/**
 * A task's credential for parameter servers. The leader issues it to the workers of an attempt.
 * With TLS its certificate's key signs it, otherwise a key derived from the cluster token. It
 * authorizes access to the shards of one attempt on the named servers, and nothing else.
 */
export interface JobClaims {
  readonly jobId: string;
  readonly attempt: number;
  /** Addresses by shard, without fragments: each fragment has a shard on each of them. */
  readonly servers: readonly string[];
  readonly issuedUnixMs: number;
  readonly expiresUnixMs: number;
  /** The id of the attempt's cluster; absent in tickets of earlier versions. */
  readonly cluster?: string | undefined;
}

/** A ticket in a task's possession; `authority` is the cluster's certificate with TLS. */
export interface JobCredentials {
  readonly ticket: string;
  readonly authority?: string | undefined;
}

/** What a node signs or verifies tickets with: its certificate with TLS, otherwise the token. */
interface TicketKeys {
  readonly clusterToken: string;
  readonly tls?: TlsIdentity | undefined;
}

/** Prefix of a ticket in the `authorization` of a call. */
export const TICKET_SCHEME = "Job ";
const MAX_TICKET_LENGTH = 16_384;
/** Verified tickets that are cached: a signature check takes longer than most calls. */
const MAX_KNOWN = 1_024;

/** Signs a ticket as this master. */
export function issueTicket(own: TicketKeys, claims: JobClaims): string {
  const payload = Buffer.from(JSON.stringify(claims));
  const { tls } = own;
  const parts = tls
    ? [payload, sign("sha256", payload, tls.material.privateKey), certificateOf(tls.material)]
    : [payload, macOf(own.clusterToken, payload)];
  return parts.map((part) => part.toString("base64url")).join(".");
}

/** Verifies the tickets of calls. */
export class TicketVerifier {
  readonly #own: TicketKeys;
  readonly #known = new BoundedMap<string, JobClaims>(MAX_KNOWN);

  constructor(own: TicketKeys) {
    this.#own = own;
  }

  /**
   * The claims of a call's ticket in `authorization`; undefined if it has none. Throws an AppError
   * `invalid_api_key` for one that is not signed by this cluster or has expired.
   */
  claimsOf(authorization: unknown): JobClaims | undefined {
    if (typeof authorization !== "string" || !authorization.startsWith(TICKET_SCHEME)) {
      return undefined;
    }
    const ticket = authorization.slice(TICKET_SCHEME.length);
    const claims = this.#known.get(ticket) ?? this.#checked(ticket);
    if (Date.now() > claims.expiresUnixMs) {
      throw new AppError("invalid_api_key", `the ticket of job ${claims.jobId} has expired`);
    }
    return claims;
  }

  #checked(ticket: string): JobClaims {
    const parts = ticket.split(".").map((part) => Buffer.from(part, "base64url"));
    const [payload, signature, certificate] = parts;
    const isOurs =
      ticket.length <= MAX_TICKET_LENGTH &&
      payload !== undefined &&
      signature !== undefined &&
      this.#isSigned(payload, signature, certificate);
    if (!isOurs) throw new AppError("invalid_api_key", "the job's ticket is not of this cluster");
    const claims = JSON.parse(payload.toString()) as JobClaims;
    this.#known.set(ticket, claims);
    return claims;
  }

  #isSigned(payload: Buffer, signature: Buffer, der: Buffer | undefined): boolean {
    const { tls, clusterToken } = this.#own;
    if (!tls) {
      const expected = macOf(clusterToken, payload);
      return signature.length === expected.length && timingSafeEqual(signature, expected);
    }
    try {
      return der !== undefined && isMasterSigned(tls.material.authority, payload, signature, der);
    } catch {
      return false;
    }
  }
}

function isMasterSigned(authority: string, payload: Buffer, signature: Buffer, der: Buffer) {
  const issuer = new X509Certificate(authority);
  const certificate = new X509Certificate(der);
  if (!certificate.checkIssued(issuer) || !certificate.verify(issuer.publicKey)) return false;
  const node = nodeNameOf(certificate.subjectAltName);
  if (node?.role !== "master" || node.domain !== domainOf(authority)) return false;
  if (!verify("sha256", payload, certificate.publicKey, signature)) return false;
  // Certificates are renewed while jobs run: the certificate must have been valid at the issue.
  const { issuedUnixMs } = JSON.parse(payload.toString()) as JobClaims;
  const { validFrom, validTo } = certificate;
  return Date.parse(validFrom) <= issuedUnixMs && issuedUnixMs <= Date.parse(validTo);
}

/** Throws an AppError `permission_denied` for a call on another job, attempt or server. */
export function checkClaims(
  claims: JobClaims | undefined,
  asked: {
    readonly jobId: string;
    readonly attempt?: number | undefined;
    readonly shard?: number | undefined;
  },
  server?: string,
): void {
  if (!claims) return;
  const { jobId, attempt, servers } = claims;
  const isOwn = asked.jobId === jobId && (asked.attempt ?? attempt) === attempt;
  const place = servers[(asked.shard ?? 0) % servers.length];
  if (isOwn && (server === undefined || place === server)) return;
  const what = `attempt ${asked.attempt ?? ""} of job ${asked.jobId}, shard ${asked.shard ?? ""} here`;
  const message = `the ticket is of attempt ${attempt} of job ${jobId}, and not for ${what}`;
  throw new AppError("permission_denied", message);
}

function macOf(clusterToken: string, payload: Buffer): Buffer {
  const key = createHmac("sha256", clusterToken).update("heddle job ticket").digest();
  return createHmac("sha256", key).update(payload).digest();
}

/** The node's own certificate, without the rest of the chain. */
function certificateOf({ certificate }: { readonly certificate: string }): Buffer {
  return new X509Certificate(certificate).raw;
}
