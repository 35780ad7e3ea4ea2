import type { Duplex } from "node:stream";
import { isDeepStrictEqual } from "node:util";
import { AppError } from "@heddle/base/errors";
import type { ModelStage, StagePeer } from "@heddle/contracts/models/model-division";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { joinStageMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import { firstMessage, frameStream } from "./frame-stream.ts";

/** A stage that is loaded answers at once. */
const OPEN_MS = 10_000;

/** A stage, and the frames of a stream to it. */
export interface JoinedStage {
  readonly peer: StagePeer;
  readonly frames: Duplex;
}

/**
 * Opens a stream to each stage before the last, in order, but for those to which one of `joined` is
 * open. `build` is what all stages must have in common. Rejects with the first failure, which names the
 * stage; no new stream is left open then.
 */
export async function joinPeers(
  { peers }: ModelStage,
  build: string,
  credentials: NodeCredentials,
  joined: readonly JoinedStage[] = [],
): Promise<readonly JoinedStage[]> {
  const open = joined.filter(({ frames }) => !frames.destroyed);
  const joins = await Promise.allSettled(
    peers.map(async (peer) => {
      const same = open.find((each) => isDeepStrictEqual(each.peer, peer));
      return same ?? { peer, frames: await joinPeer(peer, build, credentials) };
    }),
  );
  const failed = joins.find((each) => each.status === "rejected");
  const all = joins.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  if (!failed) return all;
  for (const each of all) if (!open.includes(each)) each.frames.destroy();
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
