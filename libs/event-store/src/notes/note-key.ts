import { createPublicKey, hash, type KeyObject, sign, verify } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { decodeBase64, encodeBase64 } from "./base64.ts";

/** The types of signatures of C2SP signed-note that this library makes or verifies. */
const ED25519 = 1;
const COSIGNATURE = 4;
const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;
const TIME_BYTES = 8;

const NEWLINE = 10;
const SPACE = 32;

/** The first four bytes of a hash of name, type and key; with the name it identifies a key. */
export interface NoteKey {
  readonly name: string;
  readonly id: number;
}

export interface NoteSigner extends NoteKey {
  /** The text for verifiers: name, id and public key. */
  readonly verifierKey: string;
  sign(text: string): Uint8Array;
}

export interface NoteVerifier extends NoteKey {
  /** Witnesses sign the text together with a time. */
  readonly isWitness: boolean;
  verify(text: string, signature: Uint8Array): boolean;
}

/** Signs with an Ed25519 private key. Throws `invalid_value` for a name that no key may have. */
export function noteSigner(name: string, privateKey: KeyObject): NoteSigner {
  if (privateKey.asymmetricKeyType !== "ed25519" || privateKey.type !== "private") {
    throw invalid(`the key ${name} is no private Ed25519 key`);
  }
  checkName(name);
  const { x = "" } = createPublicKey(privateKey).export({ format: "jwk" });
  const material = Buffer.concat([Buffer.of(ED25519), Buffer.from(x, "base64url")]);
  const id = keyId(name, material);
  return {
    name,
    id,
    verifierKey: `${name}+${idText(id)}+${encodeBase64(material)}`,
    sign: (text) => sign(null, Buffer.from(text), privateKey),
  };
}

/** Reads `NAME+ID+BASE64`, a key of a log or of a witness. Throws `invalid_value`. */
export function parseVerifierKey(text: string): NoteVerifier {
  const match = /^([^+]*)\+([0-9a-f]{8})\+(.+)$/.exec(text);
  const [, name = "", hex, key = ""] = match ?? [];
  const material = match ? decodeBase64(key) : undefined;
  if (!material) throw invalid(`"${text.slice(0, 100)}" is no key: it has the form NAME+ID+BASE64`);
  checkName(name);
  const [type] = material;
  if (material.byteLength !== 1 + KEY_BYTES || (type !== ED25519 && type !== COSIGNATURE)) {
    throw invalid(`the key ${name} is no Ed25519 key of a log (type 1) or of a witness (type 4)`);
  }
  const id = keyId(name, material);
  if (idText(id) !== hex) throw invalid(`the id of the key ${name} is ${idText(id)}, not ${hex}`);
  const publicKey = ed25519Key(material.subarray(1));
  const isWitness = type === COSIGNATURE;
  const isValid = isWitness ? isCosignature : isSignature;
  return { name, id, isWitness, verify: (...signed) => isValid(publicKey, ...signed) };
}

/** Key names are in signature lines, whose parts are separated by spaces. */
export function isKeyName(name: string): boolean {
  return name !== "" && isNoteText(name) && !/[\p{White_Space}+]/u.test(name);
}

/** Well-formed Unicode without control characters other than newlines. */
export function isNoteText(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code < SPACE && code !== NEWLINE) return false;
  }
  return text.isWellFormed();
}

/** As eight hexadecimal digits. */
export function idText(id: number): string {
  return id.toString(16).padStart(8, "0");
}

function isSignature(key: KeyObject, text: string, signature: Uint8Array): boolean {
  return (
    signature.byteLength === SIGNATURE_BYTES && verify(null, Buffer.from(text), key, signature)
  );
}

/** A timestamp and a signature over it and the text, after C2SP tlog-cosignature. */
function isCosignature(key: KeyObject, text: string, signature: Uint8Array): boolean {
  if (signature.byteLength !== TIME_BYTES + SIGNATURE_BYTES) return false;
  const time = Buffer.from(signature).readBigUInt64BE();
  if (time >= 2n ** 63n) return false;
  return isSignature(key, `cosignature/v1\ntime ${time}\n${text}`, signature.subarray(TIME_BYTES));
}

function keyId(name: string, material: Uint8Array): number {
  const bytes = Buffer.concat([Buffer.from(`${name}\n`), material]);
  return Buffer.from(hash("sha256", bytes, "buffer")).readUInt32BE();
}

function ed25519Key(bytes: Uint8Array): KeyObject {
  const x = Buffer.from(bytes).toString("base64url");
  return createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
}

function checkName(name: string): void {
  if (isKeyName(name)) return;
  throw invalid(`a key cannot be named "${name}": give a name without spaces and plus signs`);
}

function invalid(message: string): AppError {
  return new AppError("invalid_value", message);
}
