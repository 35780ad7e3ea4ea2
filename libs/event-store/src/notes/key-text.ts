import { AppError } from "@heddle/base/errors";
import { decodeBase64 } from "./base64.ts";

// Keys of C2SP signed-note as text, for Node and for browsers.

/** The types of signatures that this library makes or verifies. */
export const ED25519 = 1;
export const COSIGNATURE = 4;

const NEWLINE = 10;
const SPACE = 32;

/** The first four bytes of a hash of name, type and key; with the name it identifies a key. */
export interface NoteKey {
  readonly name: string;
  readonly id: number;
}

interface KeyText extends NoteKey {
  readonly type: number | undefined;
  /** The type, then the key. */
  readonly material: Uint8Array<ArrayBuffer>;
}

/** Reads the parts of `NAME+ID+BASE64`, and checks none of them. Throws `invalid_value`. */
export function parseKeyText(text: string): KeyText {
  const [, name = "", id = "", base64 = ""] = /^([^+]*)\+([0-9a-f]{8})\+(.+)$/.exec(text) ?? [];
  const material = base64 === "" ? undefined : decodeBase64(base64);
  if (material) return { name, id: Number.parseInt(id, 16), type: material[0], material };
  const message = `"${text.slice(0, 100)}" is no key: it has the form NAME+ID+BASE64`;
  throw new AppError("invalid_value", message);
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

/** Eight hexadecimal digits. */
export function idText(id: number): string {
  return id.toString(16).padStart(8, "0");
}
