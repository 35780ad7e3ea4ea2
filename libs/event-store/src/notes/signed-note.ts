import { AppError } from "@heddle/base/errors";
import { decodeBase64, encodeBase64 } from "./base64.ts";
import { idText, isKeyName, isNoteText, type NoteKey } from "./key-text.ts";
import type { NoteSigner, NoteVerifier } from "./note-key.ts";

// Notes of C2SP signed-note: a text, an empty line, and signature lines.

export const MAX_NOTE_BYTES = 1_000_000;
const MAX_SIGNATURES = 100;
const ID_BYTES = 4;

export interface NoteSignature extends NoteKey {
  /** Without the key's id. */
  readonly signature: Uint8Array;
}

export interface SignedNote {
  /** Ends with a newline. */
  readonly text: string;
  /** In the order of their lines; of a key the first one only. */
  readonly signatures: readonly NoteSignature[];
}

/** Throws `invalid_value` for a text that no note can have. */
export function signNote(text: string, signers: readonly NoteSigner[]): SignedNote {
  checkText(text);
  const signed = signers.map(({ name, id, sign }) => ({ name, id, signature: sign(text) }));
  return withSignatures({ text, signatures: [] }, signed);
}

export function formatNote({ text, signatures }: SignedNote): string {
  return `${text}\n${signatures.map(signatureLine).join("")}`;
}

/** Reads a note without verifying it. Throws `invalid_value` where it is malformed. */
export function parseNote(bytes: Uint8Array | string): SignedNote {
  const note = decoded(bytes);
  const split = note.lastIndexOf("\n\n");
  if (split < 0) throw malformed("it has no empty line before its signatures");
  const text = note.slice(0, split + 1);
  checkText(text);
  return { text, signatures: parseSignatures(note.slice(split + 2)) };
}

/**
 * The given keys that signed the note. Throws `permission_denied` where none did, or where the
 * signature of a given key is wrong. Signatures of other keys are ignored.
 */
export function verifyNote(
  { text, signatures }: SignedNote,
  verifiers: readonly NoteVerifier[],
): NoteVerifier[] {
  const verified = verifiers.filter((verifier) => {
    const found = signatures.find((signature) => isSameKey(signature, verifier));
    if (!found || verifier.verify(text, found.signature)) return found !== undefined;
    const message = `the signature of ${keyText(verifier)} does not fit the note: one of them was changed`;
    throw new AppError("permission_denied", message);
  });
  if (verified.length > 0) return verified;
  const signers = signatures.map(keyText).join(", ");
  const trusted = verifiers.map(keyText).join(", ");
  const message = `no trusted key signed the note: it has signatures of ${signers}, and trusted is ${trusted}`;
  throw new AppError("permission_denied", message);
}

/**
 * The note with further signatures of the same text; a key signs once. Throws `invalid_value` where
 * these are too many for a note.
 */
export function withSignatures(note: SignedNote, further: readonly NoteSignature[]): SignedNote {
  const signatures = distinct([...note.signatures, ...further]);
  checkCount(signatures);
  return { ...note, signatures };
}

/** Reads lines of signatures, as witnesses return them. Throws `invalid_value`. */
export function parseSignatures(lines: string): NoteSignature[] {
  if (!lines.endsWith("\n")) throw malformed("it does not end with a signature and a newline");
  const parsed = lines.slice(0, -1).split("\n").map(parseSignature);
  checkCount(parsed);
  return distinct(parsed);
}

function parseSignature(line: string): NoteSignature {
  const [, name = "", base64 = ""] = /^\u2014 ([^ ]+) ([^ ]+)$/.exec(line) ?? [];
  const bytes = decodeBase64(base64);
  if (!isKeyName(name) || !bytes || bytes.byteLength <= ID_BYTES) {
    throw malformed(`"${line.slice(0, 100)}" is no signature`);
  }
  return { name, id: new DataView(bytes.buffer).getUint32(0), signature: bytes.subarray(ID_BYTES) };
}

function signatureLine({ name, id, signature }: NoteSignature): string {
  const head = Buffer.alloc(ID_BYTES);
  head.writeUInt32BE(id);
  return `\u2014 ${name} ${encodeBase64(Buffer.concat([head, signature]))}\n`;
}

function distinct(signatures: readonly NoteSignature[]): NoteSignature[] {
  return signatures.filter(
    (one, at) => signatures.findIndex((other) => isSameKey(one, other)) === at,
  );
}

function checkCount({ length }: readonly NoteSignature[]): void {
  if (length <= MAX_SIGNATURES) return;
  throw malformed(`it has ${length} signatures; ${MAX_SIGNATURES} are allowed`);
}

export function isSameKey(one: NoteKey, other: NoteKey): boolean {
  return one.id === other.id && one.name === other.name;
}

function keyText({ name, id }: NoteKey): string {
  return `${name} (${idText(id)})`;
}

function decoded(bytes: Uint8Array | string): string {
  const length = typeof bytes === "string" ? bytes.length : bytes.byteLength;
  if (length > MAX_NOTE_BYTES) throw malformed(`it is longer than ${MAX_NOTE_BYTES} bytes`);
  if (typeof bytes === "string") return bytes;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw malformed("it is no UTF-8", cause);
  }
}

function checkText(text: string): void {
  if (!text.endsWith("\n")) throw malformed("its text does not end with a newline");
  if (!isNoteText(text)) throw malformed("it has control characters or is no UTF-8");
}

function malformed(why: string, cause?: unknown): AppError {
  return new AppError("invalid_value", `the signed note is malformed: ${why}`, { cause });
}
