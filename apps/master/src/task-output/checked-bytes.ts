import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { ArtifactRecord } from "@heddle/control/jobs/records/records";
import { ARTIFACT_PIECE_BYTES, PIECE_DIGEST_BYTES } from "@heddle/rpc/artifact-stream";

/** A range of an artifact; `maxBytes` 0 reads to its end. */
export interface ByteRange {
  readonly offset: number;
  readonly maxBytes: number;
}

/** What a holder sends: bytes of the artifact, or the digests of its pieces. */
export type RawRead = (asked: ByteRange & { readonly digests?: boolean }) => AsyncIterable<Buffer>;

/**
 * Verified bytes of an artifact. Throws `server_error` if the holder's bytes differ. With digests
 * of pieces, no byte of a wrong piece is returned; otherwise the error precedes the last bytes.
 */
export async function* checkedBytes(
  artifact: ArtifactRecord,
  { offset, maxBytes }: ByteRange,
  read: RawRead,
): AsyncGenerator<Buffer, void> {
  const { bytes, pieces } = artifact;
  const end = maxBytes === 0 ? bytes : Math.min(bytes, offset + maxBytes);
  if (offset >= end) return;
  const isWhole = offset === 0 && end === bytes;
  if (isWhole || pieces === undefined) yield* fromWhole(artifact, offset, end, read);
  else yield* fromPieces({ ...artifact, pieces }, offset, end, read);
}

/** Reads all, and holds back the last bytes until the digest is verified. */
async function* fromWhole(
  { name, bytes, sha256 }: ArtifactRecord,
  offset: number,
  end: number,
  read: RawRead,
): AsyncGenerator<Buffer, void> {
  const hash = createHash("sha256");
  let held: Buffer | undefined;
  let at = 0;
  for await (const chunk of read({ offset: 0, maxBytes: bytes })) {
    hash.update(chunk);
    const part = chunk.subarray(Math.max(0, offset - at), Math.max(0, end - at));
    at += chunk.byteLength;
    if (part.byteLength === 0) continue;
    if (held) yield held;
    held = part;
  }
  if (at !== bytes || hash.digest("hex") !== sha256) throw changed(name);
  if (held) yield held;
}

async function* fromPieces(
  { name, bytes, pieces }: ArtifactRecord & { readonly pieces: string },
  offset: number,
  end: number,
  read: RawRead,
): AsyncGenerator<Buffer, void> {
  const count = Math.ceil(bytes / ARTIFACT_PIECE_BYTES);
  const sent = read({ offset: 0, maxBytes: 0, digests: true });
  const lists = inPieces(sent, count * PIECE_DIGEST_BYTES);
  const { value: digests } = await lists.next();
  await lists.return();
  if (!digests || sha256Of(digests).toString("hex") !== pieces) throw changed(name);
  const first = Math.floor(offset / ARTIFACT_PIECE_BYTES);
  const begin = first * ARTIFACT_PIECE_BYTES;
  const last = Math.min(bytes, Math.ceil(end / ARTIFACT_PIECE_BYTES) * ARTIFACT_PIECE_BYTES);
  let at = begin;
  for await (const piece of inPieces(
    read({ offset: begin, maxBytes: last - begin }),
    ARTIFACT_PIECE_BYTES,
  )) {
    const place = (at / ARTIFACT_PIECE_BYTES) * PIECE_DIGEST_BYTES;
    if (!sha256Of(piece).equals(digests.subarray(place, place + PIECE_DIGEST_BYTES))) {
      throw changed(name);
    }
    yield piece.subarray(Math.max(0, offset - at), Math.min(piece.byteLength, end - at));
    at += piece.byteLength;
  }
  if (at !== last) throw changed(name);
}

/** The same bytes in pieces of that size; the last may be smaller. */
async function* inPieces(
  chunks: AsyncIterable<Buffer>,
  size: number,
): AsyncGenerator<Buffer, void> {
  let parts: Buffer[] = [];
  let missing = size;
  for await (const chunk of chunks) {
    for (let rest = chunk; rest.byteLength > 0; ) {
      const part = rest.subarray(0, missing);
      rest = rest.subarray(part.byteLength);
      parts.push(part);
      missing -= part.byteLength;
      if (missing > 0) continue;
      yield Buffer.concat(parts);
      parts = [];
      missing = size;
    }
  }
  if (parts.length > 0) yield Buffer.concat(parts);
}

function sha256Of(bytes: Buffer): Buffer {
  return createHash("sha256").update(bytes).digest();
}

function changed(name: string): AppError {
  const message = `The artifact ${name} on its worker's disk is not what the task left: it was changed.`;
  return new AppError("server_error", message);
}
