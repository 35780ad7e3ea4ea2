import { X509Certificate } from "node:crypto";
import { connect } from "node:tls";
import { AppError } from "@heddle/base/errors";
import {
  authorityHash,
  type CertificateAuthority,
  requestCertificate,
} from "@heddle/pki/certificate-authority";
import { parseJoinToken } from "@heddle/pki/join-token";
import { type NodeRole, nodeNameOf } from "@heddle/pki/node-name";
import { TlsIdentity, type TlsMaterial } from "@heddle/pki/tls-identity";
import { Peer } from "@heddle/rpc/peer";
import { joinMethod } from "@heddle/rpc/proto";

const DIAL_TIMEOUT_MS = 3_000;
const JOIN_DEADLINE_MS = 15_000;

export interface JoinOptions {
  /** host:port of a master. */
  readonly master: string;
  readonly token: string;
  readonly role: NodeRole;
  readonly name: string;
}

export interface Joined {
  readonly material: TlsMaterial;
  /** For masters only. */
  readonly authority: CertificateAuthority | undefined;
}

/**
 * Obtains a node's first certificate from a master, which must prove the authority whose hash is in
 * the token before it receives the secret. Rejects with `invalid_api_key` for another cluster's
 * master or an invalid token, with `unavailable` without an answer.
 */
export async function joinCluster(options: JoinOptions): Promise<Joined> {
  const token = parseJoinToken(options.token);
  if (token.authorityHash === undefined) {
    const message = "the join token is of a cluster without TLS, which issues no certificates";
    throw new AppError("invalid_value", message);
  }
  const authority = await fetchAuthority(options.master, token.authorityHash);
  const { privateKey, csr } = await requestCertificate();
  // Without a client certificate: only the master authenticates.
  const tls = new TlsIdentity({ authority, certificate: "", privateKey: "" });
  const peer = new Peer(options.master, { clusterToken: "", tls });
  try {
    const request = { secret: token.secret, role: options.role, name: options.name, csr };
    const reply = await peer.unary(joinMethod, request, { deadlineMs: JOIN_DEADLINE_MS });
    const material = { authority, certificate: reply.certificate, privateKey };
    const key = reply.authorityKey;
    return { material, authority: key ? { certificate: authority, privateKey: key } : undefined };
  } finally {
    peer.close();
  }
}

/** The authority's certificate, which a master sends after its own; its hash must match. */
function fetchAuthority(master: string, hash: string): Promise<string> {
  const at = master.lastIndexOf(":");
  const host = master.slice(0, at).replace(/^\[|\]$/g, "");
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  // Verified below by the hash; nothing is sent before.
  const unchecked = { rejectUnauthorized: false, ALPNProtocols: ["h2"] };
  const socket = connect({ host, port: Number(master.slice(at + 1)), ...unchecked });
  const fail = (message: string) => reject(new AppError("unavailable", `${master}: ${message}`));
  socket.setTimeout(DIAL_TIMEOUT_MS, () => socket.destroy(new Error("no answer")));
  socket.once("error", (error) => fail(error.message));
  socket.once("secureConnect", () => {
    const shown = socket.getPeerCertificate(true);
    try {
      resolve(checkedAuthority(shown.raw, shown.issuerCertificate?.raw, hash, master));
    } catch (error) {
      reject(error);
    }
    socket.destroy();
  });
  socket.once("close", () => fail("the connection was closed"));
  return promise;
}

function checkedAuthority(
  leaf: Buffer | undefined,
  issuer: Buffer | undefined,
  hash: string,
  master: string,
): string {
  if (!leaf || !issuer || authorityHash(issuer) !== hash) {
    const message = `the master at ${master} belongs to another cluster than the join token`;
    throw new AppError("invalid_api_key", message);
  }
  const authority = new X509Certificate(issuer);
  const own = new X509Certificate(leaf);
  const isValid = own.verify(authority.publicKey) && Date.parse(own.validTo) > Date.now();
  if (isValid && nodeNameOf(own.subjectAltName)?.role === "master") return authority.toString();
  throw new AppError("invalid_api_key", `${master} has no valid master certificate`);
}
