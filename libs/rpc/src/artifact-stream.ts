import type { NodeCredentials } from "./credentials.ts";
import { Peer } from "./peer.ts";
import { readArtifactMethod } from "./proto.ts";

/** A stream over which nothing came for so long is given up. */
const silenceMs = 30_000;

/** A range of an artifact is checked by the digests of the pieces that it touches. */
export const ARTIFACT_PIECE_BYTES = 2 ** 20;
/** Of SHA-256. */
export const PIECE_DIGEST_BYTES = 32;

/** Whom to ask for the bytes of an artifact. */
export interface ArtifactHolder {
  /** Its gRPC address. */
  readonly address: string;
  readonly role: "master" | "worker";
}

/**
 * The bytes of an artifact from a node that has it or knows who does, as fast as they are taken. Throws
 * what the node answers, and `cancelled` where nothing comes for half a minute.
 */
export async function* streamArtifact(
  { address, role }: ArtifactHolder,
  credentials: NodeCredentials,
  request: Parameters<typeof readArtifactMethod.requestSerialize>[0],
  signal: AbortSignal,
): AsyncGenerator<Buffer, void> {
  const peer = new Peer(address, credentials, role);
  const silence = new AbortController();
  const listen = () => setTimeout(() => silence.abort(), silenceMs);
  let timer = listen();
  try {
    const either = AbortSignal.any([signal, silence.signal]);
    for await (const { data } of peer.serverStream(readArtifactMethod, request, either)) {
      // Only the node's silence counts, not that of whoever reads here.
      clearTimeout(timer);
      yield data;
      timer = listen();
    }
  } finally {
    clearTimeout(timer);
    peer.close();
  }
}
