import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from "node:crypto";
import { AppError } from "./errors.ts";
import { readFlagFile } from "./flag-file.ts";
import { unwrapKey } from "./process/key-program.ts";

/**
 * A sealed text in bytes: MARK 4, the key's id 8, salt 16, counter 4, ciphertext, tag 16.
 *
 * - It is AES-256-GCM under HKDF-SHA-256(key, salt).
 * - Each process draws its own salt and counts, so no nonce is reused however many processes share
 *   a key.
 * - The bytes before the ciphertext and the purpose are authenticated too: a text sealed for one
 *   purpose opens for no other.
 */

/** Neither JSON nor PEM begins like this; the last byte is the version of the format. */
const MARK = Buffer.from([0, 0x48, 0x53, 1]);
const KEY_BYTES = 32;
const ID_BYTES = 8;
const SALT_BYTES = 16;
const TAG_BYTES = 16;
const SALT_AT = MARK.length + ID_BYTES;
const COUNTER_AT = SALT_AT + SALT_BYTES;
const HEAD_BYTES = COUNTER_AT + 4;
const MAX_COUNTER = 2 ** 32 - 1;
const CIPHER = "aes-256-gcm";

const MAX_KEYS = 16;
/** Before a key that the program of HEDDLE_SECRETS_KEY_COMMAND unwraps. */
const WRAPPED = /^wrapped:([\w+/=.:-]{1,8192})$/;
/** Cached derived keys: one for each process whose texts are read. */
const MAX_DERIVED = 64;

const TEXT_MARK = "heddle-sealed:";

/** The purposes of sealed texts. */
type Purpose =
  `${"log entry" | "snapshot" | "authority" | "node certificate" | "member key" | "document" | "job secret"}${string}`;

interface Sealing {
  readonly salt: Buffer;
  readonly derived: KeyObject;
  counter: number;
}

/**
 * Keys that encrypt secrets before they are written to a disk. The first one encrypts, all of them
 * decrypt, so that a key can be rotated; an empty set leaves texts in the clear.
 */
export class SecretKeys {
  readonly #keys: ReadonlyMap<string, Buffer>;
  readonly #sealing = new Map<string, Sealing>();
  readonly #derived = new Map<string, KeyObject>();

  constructor(keys: readonly Buffer[] = []) {
    this.#keys = new Map(keys.map((key) => [keyId(key), key]));
  }

  /**
   * The key ids, the encrypting key's first. An id names a key in messages and reveals nothing of
   * it.
   */
  get ids(): string[] {
    return [...this.#keys.keys()];
  }

  /** Encrypts under the key of that id; throws `precondition_failed` if the set lacks it. */
  seal(plain: Uint8Array, purpose: Purpose, id: string): Buffer {
    const sealing = this.#sealingOf(id);
    const head = Buffer.alloc(HEAD_BYTES);
    MARK.copy(head);
    head.write(id, MARK.length, "hex");
    sealing.salt.copy(head, SALT_AT);
    head.writeUInt32BE(sealing.counter++, COUNTER_AT);
    const cipher = createCipheriv(CIPHER, sealing.derived, nonceOf(head));
    cipher.setAAD(Buffer.concat([head, Buffer.from(purpose)]));
    return Buffer.concat([head, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  }

  /**
   * Decrypts what was sealed for the purpose; returns unsealed bytes as they are. Throws
   * `precondition_failed` without the key, and `server_error` if the bytes were changed or have
   * another purpose.
   */
  open(bytes: Uint8Array, purpose: Purpose): Uint8Array {
    const id = sealedBy(bytes);
    if (id === undefined) return bytes;
    const sealed = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const head = sealed.subarray(0, HEAD_BYTES);
    const end = sealed.length - TAG_BYTES;
    try {
      const key = this.#derive(id, head.subarray(SALT_AT, COUNTER_AT));
      const decipher = createDecipheriv(CIPHER, key, nonceOf(head));
      decipher.setAAD(Buffer.concat([head, Buffer.from(purpose)]));
      decipher.setAuthTag(sealed.subarray(Math.max(end, HEAD_BYTES)));
      return Buffer.concat([decipher.update(sealed.subarray(HEAD_BYTES, end)), decipher.final()]);
    } catch (cause) {
      if (cause instanceof AppError) throw cause;
      const message = `what was encrypted with the secrets key ${id} does not decrypt as ${purpose}: it was changed, or moved from another place`;
      throw new AppError("server_error", message, { cause });
    }
  }

  /** The text of a file: encrypted with the first key, unchanged without keys. */
  sealText(text: string, purpose: Purpose): string {
    const [id] = this.ids;
    if (id === undefined) return text;
    return `${TEXT_MARK}${this.seal(Buffer.from(text), purpose, id).toString("base64")}\n`;
  }

  /** Like `open`, for the output of `sealText`. */
  openText(text: string, purpose: Purpose): string {
    if (!text.startsWith(TEXT_MARK)) return text;
    const sealed = Buffer.from(text.slice(TEXT_MARK.length), "base64");
    return Buffer.from(this.open(sealed, purpose)).toString();
  }

  /**
   * Whether `sealText` would leave the text as it is: under the first key, or in clear without
   * keys.
   */
  isCurrent(text: string): boolean {
    return sealedTextBy(text) === this.ids[0];
  }

  /** Throws `precondition_failed` if the set lacks the key that encrypts `what`. */
  checkHolds(id: string | undefined, what: string): void {
    if (id === undefined || this.#keys.has(id)) return;
    const given =
      this.ids.length === 0 ? "no key was given" : `those given are ${this.ids.join(", ")}`;
    const message = `${what} is encrypted with the secrets key ${id}, and ${given}. Give the file that holds it: --secrets-key-file FILE (or HEDDLE_SECRETS_KEY_FILE). without that key it cannot be read.`;
    throw new AppError("precondition_failed", message);
  }

  #sealingOf(id: string): Sealing {
    let sealing = this.#sealing.get(id);
    if (!sealing || sealing.counter > MAX_COUNTER) {
      const salt = randomBytes(SALT_BYTES);
      sealing = { salt, derived: this.#derive(id, salt), counter: 0 };
      this.#sealing.set(id, sealing);
    }
    return sealing;
  }

  #derive(id: string, salt: Buffer): KeyObject {
    this.checkHolds(id, "what is read here");
    const name = `${id}${salt.toString("hex")}`;
    let derived = this.#derived.get(name);
    if (!derived) {
      const key = this.#keys.get(id) as Buffer;
      const bytes = hkdfSync("sha256", key, salt, "heddle seal", KEY_BYTES);
      derived = createSecretKey(Buffer.from(bytes));
      const [oldest] = this.#derived.keys();
      if (this.#derived.size >= MAX_DERIVED && oldest !== undefined) this.#derived.delete(oldest);
      this.#derived.set(name, derived);
    }
    return derived;
  }
}

/** Leaves every text in the clear. */
export const NO_SECRET_KEYS = new SecretKeys();

/** The id of the key under which the bytes are sealed; undefined if they are not. */
export function sealedBy(bytes: Uint8Array): string | undefined {
  if (bytes.byteLength < HEAD_BYTES + TAG_BYTES) return undefined;
  if (!MARK.every((byte, at) => bytes[at] === byte)) return undefined;
  return Buffer.from(bytes.subarray(MARK.length, SALT_AT)).toString("hex");
}

/** Like `sealedBy`, for the output of `sealText`. */
export function sealedTextBy(text: string): string | undefined {
  if (!text.startsWith(TEXT_MARK)) return undefined;
  return sealedBy(Buffer.from(text.slice(TEXT_MARK.length), "base64"));
}

/** Describes how a copy of the state is encrypted: with that key, or not at all. */
export function protectionText(key: string | undefined): string {
  if (key === undefined) {
    return "warning: it is not encrypted, and holds the cluster's secrets in clear: keep it as you keep keys, or give the masters a --secrets-key-file";
  }
  return `it is encrypted with the secrets key ${key}: keep that key, elsewhere, or it cannot be restored`;
}

/**
 * The keys of the file, or of the variable HEDDLE_SECRETS_KEY; none if neither is given. Throws
 * `invalid_value` if both are given, or one is malformed; never prints a key.
 */
export function readSecretKeys(file: string | undefined, env: NodeJS.ProcessEnv): SecretKeys {
  const text = env["HEDDLE_SECRETS_KEY"] || undefined;
  if (file !== undefined && text !== undefined) {
    const message = "both HEDDLE_SECRETS_KEY and a secrets key file are given: give one of them.";
    throw new AppError("invalid_value", message);
  }
  const program = env["HEDDLE_SECRETS_KEY_COMMAND"] || undefined;
  if (file === undefined) return parseKeys(text, "HEDDLE_SECRETS_KEY", program);
  const wanted = "the file that holds the secrets keys";
  return parseKeys(readFlagFile("--secrets-key-file", file, wanted), file, program);
}

/**
 * Keys of 32 bytes in base64 or hexadecimal, or wrapped ones, separated by white space or commas;
 * # begins a comment.
 */
function parseKeys(
  text: string | undefined,
  where: string,
  program: string | undefined,
): SecretKeys {
  if (text === undefined) return NO_SECRET_KEYS;
  const words = text
    .replace(/#.*/g, "")
    .split(/[\s,]+/)
    .filter(Boolean);
  const keys = words.slice(0, MAX_KEYS + 1).map((word) => keyOf(clearKey(word, where, program)));
  const bad = keys.findIndex((key) => key.length !== KEY_BYTES);
  if (keys.length > 0 && keys.length <= MAX_KEYS && bad === -1) return new SecretKeys(keys);
  const fault = bad === -1 ? `it has ${keys.length}` : `number ${bad + 1} is none`;
  const message = `${where} must hold 1 to ${MAX_KEYS} keys of 32 bytes in base64, one a line; ${fault}. This makes one: head -c 32 /dev/urandom | base64`;
  throw new AppError("invalid_value", message);
}

/** The key itself where the word is a wrapped one. */
function clearKey(word: string, where: string, program: string | undefined): string {
  const wrapped = WRAPPED.exec(word)?.[1];
  if (wrapped === undefined) return word;
  if (program !== undefined) return unwrapKey(program, wrapped);
  const message = `${where} holds a wrapped key, and no program unwraps it: set HEDDLE_SECRETS_KEY_COMMAND to one.`;
  throw new AppError("invalid_value", message);
}

/** Empty for a malformed key. */
function keyOf(word: string): Buffer {
  if (/^[0-9a-f]{64}$/i.test(word)) return Buffer.from(word, "hex");
  return Buffer.from(/^[A-Za-z0-9+/_-]{43}=?$/.test(word) ? word : "", "base64");
}

function keyId(key: Buffer): string {
  return Buffer.from(hkdfSync("sha256", key, "", "heddle key id", ID_BYTES)).toString("hex");
}

function nonceOf(head: Buffer): Buffer {
  return Buffer.concat([Buffer.alloc(8), head.subarray(COUNTER_AT, HEAD_BYTES)]);
}
