import { AppError } from "@heddle/base/errors";
import { type NoteVerifier, parseVerifierKey } from "@heddle/event-store/notes/note-key";

/** The witnesses of `--event-witnesses`. Throws `invalid_value` for what is no key of one. */
export function witnessesOf(keys: readonly string[]): readonly NoteVerifier[] {
  return keys.map((text) => {
    const key = parseVerifierKey(text);
    if (key.isWitness) return key;
    const message = `--event-witnesses takes keys of witnesses (type 4), and ${key.name} is of a log. Give the key that the witness publishes.`;
    throw new AppError("invalid_value", message);
  });
}
