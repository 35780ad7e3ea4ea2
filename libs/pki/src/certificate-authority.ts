import { createHash, randomBytes, webcrypto, X509Certificate } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { type NodeName, type NodeRole, spiffeUri } from "./node-name.ts";

/** The authority that signs the certificates of a cluster's nodes; both members are PEM. */
export interface CertificateAuthority {
  readonly certificate: string;
  readonly privateKey: string;
}

/** A key and the request for its certificate; both are PEM. */
export interface CertificateRequest {
  readonly privateKey: string;
  readonly csr: string;
}

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const AUTHORITY_YEARS = 20;
const YEAR_MS = 365.25 * 86_400_000;
/** Clock difference between machines: a certificate is valid from this long before its creation. */
export const CLOCK_SKEW_MS = 5 * 60_000;

/** Node can parse X.509 but not create it. Loaded on demand, because loading takes longest. */
const x509 = () => import("./x509.ts");

/** Creates the authority of a new cluster. */
export async function createAuthority(): Promise<CertificateAuthority> {
  const lib = await x509();
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
  const certificate = await lib.X509CertificateGenerator.createSelfSigned({
    serialNumber: serialNumber(),
    name: "CN=heddle cluster",
    notBefore: new Date(Date.now() - CLOCK_SKEW_MS),
    notAfter: new Date(Date.now() + AUTHORITY_YEARS * YEAR_MS),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [
      new lib.BasicConstraintsExtension(true, 0, true),
      new lib.KeyUsagesExtension(lib.KeyUsageFlags.keyCertSign, true),
      await lib.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificate: certificate.toString("pem"), privateKey: await pemOf(keys.privateKey) };
}

/**
 * A key and a self-signed certificate, for peers that receive the certificate itself; with the names
 * of hosts if they look at those.
 */
export async function createOwnCertificate(
  hosts: readonly string[] = [],
): Promise<CertificateAuthority> {
  const lib = await x509();
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
  const certificate = await lib.X509CertificateGenerator.createSelfSigned({
    serialNumber: serialNumber(),
    name: "CN=heddle task",
    notBefore: new Date(Date.now() - CLOCK_SKEW_MS),
    notAfter: new Date(Date.now() + YEAR_MS),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [
      new lib.KeyUsagesExtension(lib.KeyUsageFlags.digitalSignature, true),
      new lib.ExtendedKeyUsageExtension([lib.ExtendedKeyUsage.serverAuth]),
      ...(hosts.length > 0
        ? [
            new lib.SubjectAlternativeNameExtension(
              hosts.map((value) => ({ type: "dns", value }) as const),
            ),
          ]
        : []),
    ],
  });
  return { certificate: certificate.toString("pem"), privateKey: await pemOf(keys.privateKey) };
}

/** Creates a node's key and the request for its certificate. */
export async function requestCertificate(): Promise<CertificateRequest> {
  const lib = await x509();
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
  const request = await lib.Pkcs10CertificateRequestGenerator.create({
    // The authority chooses the name in the certificate.
    name: "CN=heddle node",
    keys,
    signingAlgorithm: ALGORITHM,
  });
  return { privateKey: await pemOf(keys.privateKey), csr: request.toString("pem") };
}

/**
 * Signs a certificate for the request's key, followed by the authority's own, so that a node which
 * knows only that one's hash can verify both. Throws `invalid_value` if the request does not prove
 * possession of the key.
 */
export async function signNode(
  authority: CertificateAuthority,
  csr: string,
  node: { readonly role: NodeRole; readonly name: string },
  lifetimeMs: number,
): Promise<string> {
  const lib = await x509();
  const request = await readRequest(csr);
  const issuer = new lib.X509Certificate(authority.certificate);
  const certificate = await lib.X509CertificateGenerator.create({
    serialNumber: serialNumber(),
    subject: `CN=${node.name}`,
    issuer: issuer.subject,
    notBefore: new Date(Date.now() - CLOCK_SKEW_MS),
    notAfter: new Date(Date.now() + lifetimeMs),
    signingAlgorithm: ALGORITHM,
    signingKey: await signingKey(authority.privateKey),
    publicKey: request.publicKey,
    extensions: [
      new lib.BasicConstraintsExtension(false, undefined, true),
      new lib.KeyUsagesExtension(lib.KeyUsageFlags.digitalSignature, true),
      new lib.ExtendedKeyUsageExtension([
        lib.ExtendedKeyUsage.serverAuth,
        lib.ExtendedKeyUsage.clientAuth,
      ]),
      new lib.SubjectAlternativeNameExtension([
        { type: "url", value: spiffeUri({ ...node, domain: domainOf(authority.certificate) }) },
      ]),
      await lib.AuthorityKeyIdentifierExtension.create(issuer),
    ],
  });
  return `${certificate.toString("pem")}\n${authority.certificate}\n`;
}

/** SHA-256 of the authority's certificate, as in join tokens: 64 hexadecimal digits. */
export function authorityHash(certificate: string | Uint8Array): string {
  const { raw } = new X509Certificate(certificate);
  return createHash("sha256").update(raw).digest("hex");
}

/** The trust domain of all nodes of the authority. */
export function domainOf(certificate: string): NodeName["domain"] {
  return authorityHash(certificate).slice(0, 32);
}

async function readRequest(csr: string) {
  const lib = await x509();
  try {
    const request = new lib.Pkcs10CertificateRequest(csr);
    if (await request.verify()) return request;
  } catch (cause) {
    throw new AppError("invalid_value", "the certificate request cannot be read", { cause });
  }
  throw new AppError("invalid_value", "the certificate request is not signed by its own key");
}

/** Positive and unique. */
function serialNumber(): string {
  return `01${randomBytes(15).toString("hex")}`;
}

async function pemOf(key: webcrypto.CryptoKey): Promise<string> {
  const der = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", key)).toString("base64");
  const lines = der.match(/.{1,64}/g) ?? [];
  return ["-----BEGIN PRIVATE KEY-----", ...lines, "-----END PRIVATE KEY-----", ""].join("\n");
}

function signingKey(pem: string): Promise<webcrypto.CryptoKey> {
  const der = Buffer.from(pem.replace(/-----[^-]+-----|\s/g, ""), "base64");
  return webcrypto.subtle.importKey("pkcs8", der, ALGORITHM, false, ["sign"]);
}
