import { createPrivateKey, createPublicKey, generateKeyPairSync, sign, verify } from "node:crypto";

// Ed25519 (RFC 8032). A member's nonce is its public key, which the group keeps.
// The private key never leaves the member's data directory.

const KEY_BYTES = 32;
const ED25519 = { kty: "OKP", crv: "Ed25519" };

/** Both in hexadecimal, 32 bytes each. */
export interface MemberKey {
  readonly nonce: string;
  /** The private part. */
  readonly key: string;
}

export function newMemberKey(): MemberKey {
  const { x, d } = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  return { nonce: hex(x), key: hex(d) };
}

/** False for the nonce of a data directory that was made by a build without keys. */
export function isPublicKey(nonce: string): boolean {
  return new RegExp(`^[0-9a-f]{${2 * KEY_BYTES}}$`).test(nonce);
}

/** The signature in hexadecimal. */
export function signWith({ nonce, key }: MemberKey, text: string): string {
  const jwk = { ...ED25519, x: base64url(nonce), d: base64url(key) };
  return sign(null, Buffer.from(text), createPrivateKey({ key: jwk, format: "jwk" })).toString(
    "hex",
  );
}

export function isSignedBy(nonce: string, text: string, signature: string): boolean {
  const key = createPublicKey({ key: { ...ED25519, x: base64url(nonce) }, format: "jwk" });
  return verify(null, Buffer.from(text), key, Buffer.from(signature, "hex"));
}

function hex(part: string | undefined): string {
  return Buffer.from(part ?? "", "base64url").toString("hex");
}

function base64url(text: string): string {
  return Buffer.from(text, "hex").toString("base64url");
}
