import { AppError } from "@heddle/base/errors";
import { HASH_BYTES, MAX_PROOF_HASHES } from "../merkle/sibling-sides.ts";
import { decodeBase64, encodeBase64 } from "./base64.ts";
import { parseCount } from "./checkpoint.ts";
import { formatNote, parseNote, type SignedNote } from "./signed-note.ts";

/** The text of C2SP tlog-proof: that an entry is in a log, for readers without the log. */
export interface TlogProof {
  /** Data of the application, which is not proved. */
  readonly extra?: Uint8Array | undefined;
  readonly index: number;
  /** The hashes of the path, from the entry's sibling to the root. */
  readonly hashes: readonly Uint8Array[];
  readonly checkpoint: SignedNote;
}

const HEAD = "c2sp.org/tlog-proof@v1";

export function formatTlogProof({ extra, index, hashes, checkpoint }: TlogProof): string {
  const lines = [HEAD];
  if (extra) lines.push(`extra ${encodeBase64(extra)}`);
  lines.push(`index ${index}`, ...hashes.map(encodeBase64), "", formatNote(checkpoint));
  return lines.join("\n");
}

/** Reads a proof without verifying it. Throws `invalid_value` where it is malformed. */
export function parseTlogProof(text: string): TlogProof {
  const split = text.indexOf("\n\n");
  const lines = text.slice(0, Math.max(0, split)).split("\n");
  if (lines.shift() !== HEAD) throw malformed(`its first line is not ${HEAD}`);
  const extra = lines[0]?.startsWith("extra ") ? parseExtra(lines.shift() as string) : undefined;
  const index = parseCount(/^index (.*)$/.exec(lines.shift() ?? "")?.[1] ?? "");
  if (index === undefined) throw malformed("it has no line with the index of the entry");
  if (lines.length > MAX_PROOF_HASHES) throw malformed(`it has ${lines.length} hashes`);
  return {
    extra,
    index,
    hashes: lines.map(parseHash),
    checkpoint: parseNote(text.slice(split + 2)),
  };
}

function parseExtra(line: string): Uint8Array {
  const extra = decodeBase64(line.slice("extra ".length));
  if (!extra) throw malformed("its extra data is no base64");
  return extra;
}

function parseHash(line: string): Uint8Array {
  const hash = decodeBase64(line);
  if (hash?.byteLength === HASH_BYTES) return hash;
  throw malformed(`"${line.slice(0, 60)}" is no hash of 32 bytes`);
}

function malformed(why: string): AppError {
  return new AppError("invalid_value", `the proof is malformed: ${why}`);
}
