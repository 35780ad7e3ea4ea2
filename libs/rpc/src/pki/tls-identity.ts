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

/** What a node shows to others; all PEM. */
export interface TlsMaterial {
  readonly authority: string;
  /** The node's own, and the authority's after it. */
  readonly certificate: string;
  readonly privateKey: string;
}

type Provider = NonNullable<
  Parameters<typeof experimental.createCertificateProviderServerCredentials>[1]
>;
type IdentityListener = Parameters<Provider["addIdentityCertificateListener"]>[0];
type AuthorityListener = Parameters<Provider["addCaCertificateListener"]>[0];

/**
 * A node's certificate, which is replaced while connections stand: new ones use the new one, open
 * ones go on. It tells gRPC of each replacement.
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

  /** Shows this from now on; the authority stays the same. */
  update(material: TlsMaterial): void {
    this.#material = material;
    for (const listener of this.#identityListeners) listener(this.#identityUpdate);
    for (const listener of this.#updateListeners) listener();
  }

  /** Tells of each replacement from now on, until the function that it returns is called. */
  onUpdate(listener: () => void): () => void {
    this.#updateListeners.add(listener);
    return () => this.#updateListeners.delete(listener);
  }

  /** For connections that are not gRPC's, on which both sides show a certificate. */
  get secureContext(): SecureContextOptions {
    const { authority, certificate, privateKey } = this.#material;
    return { ca: authority, cert: certificate, key: privateKey, minVersion: "TLSv1.3" };
  }

  /** For a connection to a node of that role; another one's certificate ends the handshake. */
  channelCredentials(role: NodeRole): ChannelCredentials {
    const { authority, privateKey, certificate } = this.#material;
    const checks = {
      checkServerIdentity: (_host: string, shown: PeerCertificate) => this.peerFault(shown, [role]),
    };
    // A node that is about to join has no certificate yet.
    if (certificate === "")
      return credentials.createSsl(Buffer.from(authority), null, null, checks);
    const own = [Buffer.from(privateKey), Buffer.from(certificate)] as const;
    return credentials.createSsl(Buffer.from(authority), ...own, checks);
  }

  /**
   * For a server that asks for certificates and takes connections without one too: what a caller may
   * do is checked for each call (credentials.ts), since joining needs none.
   */
  serverCredentials(): ServerCredentials {
    const provider: Provider = {
      addIdentityCertificateListener: (listener) => {
        this.#identityListeners.add(listener);
        // Not within the call: gRPC does not yet pass on what it is told before that returns.
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

  /** Who the other side is, from a certificate that the handshake has verified; throws otherwise. */
  peerName(shown: PeerCertificate | undefined, roles: readonly NodeRole[]): NodeName {
    const fault = this.peerFault(shown, roles);
    if (fault) throw fault;
    return nodeNameOf(shown?.subjectaltname) as NodeName;
  }

  /** Why a verified certificate does not do for any of the roles; undefined where it does. */
  peerFault(shown: PeerCertificate | undefined, roles: readonly NodeRole[]): AppError | undefined {
    if (!shown) {
      const message = "the call needs a certificate of the cluster that is valid now";
      return new AppError("invalid_api_key", message);
    }
    const node = nodeNameOf(shown.subjectaltname);
    if (!node || node.domain !== this.domain) {
      return new AppError("invalid_api_key", "the certificate names no node of this cluster");
    }
    // A connection may outlive the certificate that it was opened with.
    if (Date.parse(shown.valid_to) < Date.now()) {
      return new AppError("invalid_api_key", `the certificate of ${node.name} has expired`);
    }
    if (roles.includes(node.role)) return undefined;
    const message = `${node.name} is a ${node.role}; this is for a ${roles.join(" or ")}`;
    return new AppError("permission_denied", message);
  }

  get #identityUpdate() {
    const { certificate, privateKey } = this.#material;
    return { certificate: Buffer.from(certificate), privateKey: Buffer.from(privateKey) };
  }
}

/** From when to when a certificate is valid, in milliseconds since the epoch. */
export function validityOf(certificate: string): {
  readonly fromMs: number;
  readonly untilMs: number;
} {
  const { validFrom, validTo } = new X509Certificate(certificate);
  return { fromMs: Date.parse(validFrom), untilMs: Date.parse(validTo) };
}
