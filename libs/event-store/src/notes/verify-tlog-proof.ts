import { AppError } from "@heddle/base/errors";
import { leafHash } from "../merkle/hash.ts";
import { isIncluded } from "../merkle/verify-proof.ts";
import { type Checkpoint, type LogTrust, verifyCheckpoint } from "./checkpoint.ts";
import type { TlogProof } from "./tlog-proof.ts";

/**
 * The checkpoint that covers the entry. Throws `permission_denied` where no trusted key signed it,
 * and `unprocessable` where the entry is not at that place in the log.
 */
export function verifyTlogProof(proof: TlogProof, entry: Uint8Array, trust: LogTrust): Checkpoint {
  const checkpoint = verifyCheckpoint(proof.checkpoint, trust);
  if (isIncluded(leafHash(entry), proof.index, checkpoint, proof.hashes)) return checkpoint;
  const message = `the proof does not show the entry at ${proof.index} of ${checkpoint.origin}`;
  throw new AppError("unprocessable", `${message}: the entry, its place or the proof was changed`);
}
