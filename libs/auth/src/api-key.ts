import { createHmac, type KeyObject, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

/**
 * API keys: `hdl_<environment>_<id>_<secret><checksum>`, where id is 8, secret 43 (256 bits) and
 * checksum 6 characters of base62. The checksum (CRC-32 of everything before it) detects typing
 * errors without a look-up.
 */
export interface NewApiKey {
  readonly id: string;
  /** Shown to the key's owner once; only its hash is kept. */
  readonly text: string;
}

export type ParsedApiKey =
  | { readonly ok: true; readonly id: string; readonly environment: string }
  | { readonly ok: false; readonly reason: "malformed" | "checksum" };

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SHAPE = /^hdl_([a-z0-9]{1,16})_([0-9A-Za-z]{8})_[0-9A-Za-z]{43}([0-9A-Za-z]{6})$/;
const CHECKSUM_LENGTH = 6;

/** A new key for an environment (1 to 16 lower-case letters or digits, such as `live`). */
export function createApiKey(environment: string): NewApiKey {
  const id = randomBase62(8);
  const body = `hdl_${environment}_${id}_${randomBase62(43)}`;
  const text = body + checksumOf(body);
  if (!SHAPE.test(text)) throw new TypeError(`environment ${JSON.stringify(environment)} is bad`);
  return { id, text };
}

/** Checks the format and checksum of a key, not its existence. */
export function parseApiKey(text: string): ParsedApiKey {
  const match = SHAPE.exec(text);
  if (!match) return { ok: false, reason: "malformed" };
  const [, environment = "", id = "", checksum] = match;
  if (checksumOf(text.slice(0, -CHECKSUM_LENGTH)) !== checksum) {
    return { ok: false, reason: "checksum" };
  }
  return { ok: true, id, environment };
}

/** The stored hash of a key: HMAC-SHA-256 with the cluster's pepper, hexadecimal. */
export function hashApiKey(text: string, pepper: KeyObject): string {
  return createHmac("sha256", pepper).update(text).digest("hex");
}

function checksumOf(body: string): string {
  let rest = crc32(body);
  let digits = "";
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    digits = (ALPHABET[rest % 62] ?? "") + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

function randomBase62(length: number): string {
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // Bytes from 248 on would favour the first letters of the alphabet, so they are skipped.
      if (byte < 248 && text.length < length) text += ALPHABET[byte % 62];
    }
  }
  return text;
}
