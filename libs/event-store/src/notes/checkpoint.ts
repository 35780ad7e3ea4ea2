import { AppError } from "@heddle/base/errors";
import { HASH_BYTES } from "../merkle/sibling-sides.ts";
import type { TreeHead } from "../merkle/verify-proof.ts";
import { decodeBase64, encodeBase64 } from "./base64.ts";
import { isNoteText } from "./key-text.ts";
import type { NoteVerifier } from "./note-key.ts";
import { type SignedNote, verifyNote } from "./signed-note.ts";

/** The text of C2SP tlog-checkpoint: a tree of the log that its origin names. */
export interface Checkpoint extends TreeHead {
  readonly origin: string;
  /** Further lines, without meaning here. */
  readonly extensions: readonly string[];
}

/** The keys that are trusted to sign for a log. */
export interface LogTrust {
  readonly origin: string;
  /** Keys of the log, of which one must have signed, and of witnesses. */
  readonly keys: readonly NoteVerifier[];
  /** How many of the witnesses must have signed; 0 by default. */
  readonly quorum?: number;
}

export function checkpointText({ origin, size, root, extensions }: Checkpoint): string {
  return [origin, size, encodeBase64(root), ...extensions].map((line) => `${line}\n`).join("");
}

/** Throws `invalid_value` where the text is no checkpoint, or not in its only form. */
export function parseCheckpoint(text: string): Checkpoint {
  const [origin = "", sizeText = "", rootText = "", ...extensions] = text.split("\n");
  const end = extensions.pop();
  if (end !== "") throw malformed("it has fewer than three lines, or no newline at the end");
  if (origin === "") throw malformed("its first line, the origin, is empty");
  const size = parseCount(sizeText);
  if (size === undefined)
    throw malformed(`its second line, "${sizeText.slice(0, 40)}", is no size`);
  const root = decodeBase64(rootText);
  if (root?.byteLength !== HASH_BYTES) throw malformed("its third line is no hash of 32 bytes");
  if (extensions.includes("")) throw malformed("it has an empty line");
  return { origin, size, root, extensions };
}

/**
 * The checkpoint of a note, once the trusted keys signed it. Throws `permission_denied` where they
 * did not, and `invalid_value` where it is malformed or of another log.
 */
export function verifyCheckpoint(note: SignedNote, trust: LogTrust): Checkpoint {
  const signers = verifyNote(note, trust.keys);
  const checkpoint = parseCheckpoint(note.text);
  if (checkpoint.origin !== trust.origin) {
    throw new AppError(
      "invalid_value",
      `the checkpoint is of the log ${checkpoint.origin}, not of ${trust.origin}`,
    );
  }
  const witnesses = signers.filter(({ isWitness }) => isWitness).length;
  const { quorum = 0 } = trust;
  if (witnesses === signers.length || witnesses < quorum) {
    const message = `the checkpoint has signatures of ${signers.length - witnesses} keys of the log and ${witnesses} witnesses`;
    throw new AppError("permission_denied", `${message}; it needs 1 and ${quorum}`);
  }
  return checkpoint;
}

/** Throws `invalid_value` where a checkpoint cannot begin with that name of a log. */
export function checkOrigin(origin: string): void {
  if (origin !== "" && !origin.includes("\n") && isNoteText(origin)) return;
  const message = `a log cannot be named "${origin}". Give one line without control characters`;
  throw new AppError("invalid_value", message);
}

/** A decimal number without leading zeros that is exact. */
export function parseCount(text: string): number | undefined {
  if (!/^(0|[1-9]\d{0,15})$/.test(text)) return undefined;
  const count = Number(text);
  return Number.isSafeInteger(count) ? count : undefined;
}

function malformed(why: string): AppError {
  return new AppError("invalid_value", `the checkpoint is malformed: ${why}`);
}
