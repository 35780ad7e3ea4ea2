import { X509Certificate } from "node:crypto";
import type { PeerCertificate, SecureContextOptions } from "node:tls";
import {
  type ChannelCredentials,
  credentials,
  experimental,
  type ServerCredentials,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { domainOf } from "./certificate-authority.ts";
import { type NodeName, type NodeRole, nodeNameOf } from "./node-name.ts";

/** A node's certificate and key; all PEM. */
export interface TlsMaterial {
  readonly authority: string;
  /** The node's own, followed by the authority's. */
  readonly certificate: string;
  readonly privateKey: string;
}

type Provider = NonNullable<
  Parameters<typeof experimental.createCertificateProviderServerCredentials>[1]
>;
type IdentityListener = Parameters<Provider["addIdentityCertificateListener"]>[0];
type AuthorityListener = Parameters<Provider["addCaCertificateListener"]>[0];

/**
 * A node's certificate, replaceable while connections are open: new ones use the new one. It
 * notifies gRPC of each replacement.
 */
export class TlsIdentity {
  readonly domain: string;
  #material: TlsMaterial;
  readonly #identityListeners = new Set<IdentityListener>();
  readonly #authorityListeners = new Set<AuthorityListener>();
  readonly #updateListeners = new Set<() => void>();

  constructor(material: TlsMaterial) {
    this.#material = material;
    this.domain = domainOf(material.authority);
  }

  get material(): TlsMaterial {
    return this.#material;
  }

  /** Uses this from now on; the authority stays the same. */
  update(material: TlsMaterial): void {
    this.#material = material;
    for (const listener of this.#identityListeners) listener(this.#identityUpdate);
    for (const listener of this.#updateListeners) listener();
  }

  /** Calls the listener on each replacement, until the returned function is called. */
  onUpdate(listener: () => void): () => void {
    this.#updateListeners.add(listener);
    return () => this.#updateListeners.delete(listener);
  }

  /** For connections outside gRPC, with mutual TLS. */
  get secureContext(): SecureContextOptions {
    const { authority, certificate, privateKey } = this.#material;
    return { ca: authority, cert: certificate, key: privateKey, minVersion: "TLSv1.3" };
  }

  /** For a connection to a node of that role; other certificates fail the handshake. */
  channelCredentials(role: NodeRole): ChannelCredentials {
    const { authority, privateKey, certificate } = this.#material;
    const checks = {
      checkServerIdentity: (_host: string, shown: PeerCertificate) => this.peerFault(shown, [role]),
    };
    // A joining node has no certificate yet.
    if (certificate === "")
      return credentials.createSsl(Buffer.from(authority), null, null, checks);
    const own = [Buffer.from(privateKey), Buffer.from(certificate)] as const;
    return credentials.createSsl(Buffer.from(authority), ...own, checks);
  }

  /**
   * For a server that requests but does not require certificates, since joining needs none: each
   * call is authorized separately (credentials.ts).
   */
  serverCredentials(): ServerCredentials {
    const provider: Provider = {
      addIdentityCertificateListener: (listener) => {
        this.#identityListeners.add(listener);
        // Deferred: gRPC ignores notifications before this call returns.
        queueMicrotask(() => listener(this.#identityUpdate));
      },
      removeIdentityCertificateListener: (listener) => this.#identityListeners.delete(listener),
      addCaCertificateListener: (listener) => {
        this.#authorityListeners.add(listener);
        queueMicrotask(() => listener({ caCertificate: Buffer.from(this.#material.authority) }));
      },
      removeCaCertificateListener: (listener) => this.#authorityListeners.delete(listener),
    };
    return experimental.createCertificateProviderServerCredentials(provider, provider, false);
  }

  /** The other side's identity, from a verified certificate; throws otherwise. */
  peerName(shown: PeerCertificate | undefined, roles: readonly NodeRole[]): NodeName {
    const fault = this.peerFault(shown, roles);
    if (fault) throw fault;
    return nodeNameOf(shown?.subjectaltname) as NodeName;
  }

  /** Why a verified certificate fits none of the roles; undefined if it fits. */
  peerFault(shown: PeerCertificate | undefined, roles: readonly NodeRole[]): AppError | undefined {
    if (!shown) {
      const message = "the call needs a certificate of the cluster that is valid now";
      return new AppError("invalid_api_key", message);
    }
    const node = nodeNameOf(shown.subjectaltname);
    if (!node || node.domain !== this.domain) {
      return new AppError("invalid_api_key", "the certificate names no node of this cluster");
    }
    // A connection may outlive its certificate.
    if (Date.parse(shown.valid_to) < Date.now()) {
      return new AppError("invalid_api_key", `the certificate of ${node.name} has expired`);
    }
    if (roles.includes(node.role)) return undefined;
    const allowed = roles.length > 0 ? `a ${roles.join(" or ")}` : "a task with its job's ticket";
    const message = `${node.name} is a ${node.role}; this is for ${allowed}`;
    return new AppError("permission_denied", message);
  }

  get #identityUpdate() {
    const { certificate, privateKey } = this.#material;
    return { certificate: Buffer.from(certificate), privateKey: Buffer.from(privateKey) };
  }
}

/** A certificate's period of validity, in milliseconds since the epoch. */
export function validityOf(certificate: string): {
  readonly fromMs: number;
  readonly untilMs: number;
} {
  const { validFrom, validTo } = new X509Certificate(certificate);
  return { fromMs: Date.parse(validFrom), untilMs: Date.parse(validTo) };
}
