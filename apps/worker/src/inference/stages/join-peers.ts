import type { Duplex } from "node:stream";
import { isDeepStrictEqual } from "node:util";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ModelStage, StagePeer } from "@heddle/contracts/models/model-division";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { joinStageMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import { firstMessage, frameStream } from "./frame-stream.ts";

/** A stage that is loaded answers at once. */
const OPEN_MS = 5_000;
/** A worker that does not answer within this time, by the gRPC library of its process, is lost. */
const ALIVE_OPTIONS = { "grpc.keepalive_time_ms": 5_000, "grpc.keepalive_timeout_ms": 5_000 };

/** A stage, and the frames of a stream to it. */
export interface JoinedStage {
  readonly peer: StagePeer;
  readonly frames: Duplex;
}

/** What the worker with the last stage knows of the others. */
export interface KnownPeers {
  readonly joined: Set<JoinedStage>;
  /** Keyed by node: since when it is not reached, as performance.now() has it. */
  readonly unreachable: Map<string, number>;
}

/**
 * Opens a stream to each stage before the last that has none; `build` is what all stages must have
 * in common. Rejects with the first failure but keeps the other streams for the next try, since a
 * stage that is left begins again.
 */
export async function joinPeers(
  { peers }: ModelStage,
  build: string,
  credentials: NodeCredentials,
  { joined, unreachable }: KnownPeers,
): Promise<readonly JoinedStage[]> {
  const beganMs = performance.now();
  for (const each of joined) if (each.frames.destroyed) joined.delete(each);
  for (const node of unreachable.keys())
    if (!peers.some((peer) => peer.node === node)) unreachable.delete(node);
  const joins = await Promise.allSettled(
    peers.map(async (peer) => {
      const same = [...joined].find((each) => isDeepStrictEqual(each.peer, peer));
      const stage = same ?? { peer, frames: await joinPeer(peer, build, credentials) };
      joined.add(stage);
      return stage;
    }),
  );
  for (const [i, join] of joins.entries()) {
    const { node } = peers[i]!;
    // One that refuses is reached.
    const isAway = join.status === "rejected" && toAppError(join.reason).code === "unavailable";
    if (!isAway) unreachable.delete(node);
    else if (!unreachable.has(node)) unreachable.set(node, beganMs);
  }
  const failed = joins.find((each) => each.status === "rejected");
  if (failed) throw failed.reason;
  return joins.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
}

async function joinPeer(
  { address, deployment, from, to }: StagePeer,
  build: string,
  credentials: NodeCredentials,
): Promise<Duplex> {
  const peer = new Peer(address, credentials, "worker", ALIVE_OPTIONS);
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
