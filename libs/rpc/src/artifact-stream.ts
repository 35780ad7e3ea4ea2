import type { NodeCredentials } from "./credentials.ts";
import { Peer } from "./peer.ts";
import { readArtifactMethod } from "./proto.ts";

/** A stream without data for this long is cancelled. */
const SILENCE_MS = 30_000;

/** A range of an artifact is verified by the digests of its pieces. */
export const ARTIFACT_PIECE_BYTES = 2 ** 20;
/** The length of a SHA-256 hash. */
export const PIECE_DIGEST_BYTES = 32;

/** A node that serves the bytes of an artifact. */
export interface ArtifactHolder {
  /** Its gRPC address. */
  readonly address: string;
  readonly role: "master" | "worker";
}

/**
 * The bytes of an artifact from a node that has or relays it, with back-pressure. Throws the node's
 * error, and `cancelled` after half a minute of silence.
 */
export async function* streamArtifact(
  { address, role }: ArtifactHolder,
  credentials: NodeCredentials,
  request: Parameters<typeof readArtifactMethod.requestSerialize>[0],
  signal: AbortSignal,
): AsyncGenerator<Buffer, void> {
  const peer = new Peer(address, credentials, role);
  const silence = new AbortController();
  const listen = () => setTimeout(() => silence.abort(), SILENCE_MS);
  let timer = listen();
  try {
    const either = AbortSignal.any([signal, silence.signal]);
    for await (const { data } of peer.serverStream(readArtifactMethod, request, either)) {
      // Only the node's silence counts, not the reader's.
      clearTimeout(timer);
      yield data;
      timer = listen();
    }
  } finally {
    clearTimeout(timer);
    peer.close();
  }
}
