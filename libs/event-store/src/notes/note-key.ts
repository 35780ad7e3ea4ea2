import { createPublicKey, hash, type KeyObject, sign, verify } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { encodeBase64 } from "./base64.ts";
import { COSIGNATURE, ED25519, idText, isKeyName, type NoteKey, parseKeyText } from "./key-text.ts";

const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;
const TIME_BYTES = 8;

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
  const { name, id: given, type, material } = parseKeyText(text);
  checkName(name);
  if (material.byteLength !== 1 + KEY_BYTES || (type !== ED25519 && type !== COSIGNATURE)) {
    throw invalid(`the key ${name} is no Ed25519 key of a log (type 1) or of a witness (type 4)`);
  }
  const id = keyId(name, material);
  if (id !== given) {
    throw invalid(`the id of the key ${name} is ${idText(id)}, not ${idText(given)}`);
  }
  const publicKey = ed25519Key(material.subarray(1));
  const isWitness = type === COSIGNATURE;
  const isValid = isWitness ? isCosignature : isSignature;
  return { name, id, isWitness, verify: (...signed) => isValid(publicKey, ...signed) };
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
