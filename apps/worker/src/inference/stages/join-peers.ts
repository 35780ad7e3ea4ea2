import type { Duplex } from "node:stream";
import { AppError } from "@heddle/base/errors";
import type { ModelStage, StagePeer } from "@heddle/contracts/models/model-division";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { joinStageMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import { firstMessage, frameStream } from "./frame-stream.ts";

/** A stage that is loaded answers at once. */
const OPEN_MS = 10_000;

/**
 * Opens a stream to each stage before the last, in order. `build` is what all stages must have in
 * common. Rejects with the first failure, which names the stage; no stream is left open then.
 */
export async function joinPeers(
  { peers }: ModelStage,
  build: string,
  credentials: NodeCredentials,
): Promise<readonly Duplex[]> {
  const joined = await Promise.allSettled(peers.map((peer) => joinPeer(peer, build, credentials)));
  const open = joined.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const failed = joined.find((each) => each.status === "rejected");
  if (!failed) return open;
  for (const stream of open) stream.destroy();
  throw failed.reason;
}

async function joinPeer(
  { address, deployment, from, to }: StagePeer,
  build: string,
  credentials: NodeCredentials,
): Promise<Duplex> {
  const peer = new Peer(address, credentials, "worker");
  const call = peer.duplex(joinStageMethod);
  // Each failure is reported by what waits at that time.
  call.on("error", () => undefined);
  try {
    call.write({ open: { deployment, build } });
    await firstMessage(call, OPEN_MS);
  } catch (error) {
    call.cancel();
    peer.close();
    const { code, message } = fromStatus(error, address);
    const where = `the stage of blocks ${from} to ${to - 1} at ${address}`;
    throw new AppError(code, `${where}: ${message}`, { cause: error });
  }
  const frames = frameStream(call);
  frames.once("close", () => peer.close());
  return frames;
}
