import { AppError, toAppError } from "@heddle/base/errors";
import type { ShardStatus__Output } from "@heddle/contracts/generated/heddle/v1/ShardStatus";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { shardMethods } from "./shard-methods.ts";
import { encodeShard, type ShardSetSpec } from "./shard-spec.ts";

/** Whose shards, and how to reach their servers. */
export interface ShardSetAccess {
  readonly spec: ShardSetSpec;
  readonly credentials: NodeCredentials;
  readonly signal: AbortSignal;
}

/** A checkpoint of all shards at one version; what a job remembers of it. */
export interface ShardSetCheckpoint {
  readonly name: string;
  readonly version: number;
  /** Shards that wrote it. */
  readonly pieces: number;
  /** Servers that hold its pieces, by shard. */
  readonly servers: readonly string[];
  readonly bytes: number;
}

const OPEN_MS = 30_000;
const CHECKPOINT_MS = 300_000;
const RESTORE_MS = 600_000;
/** Under ssp and asp shards run on while they are asked: how often their version is looked up anew. */
const VERSION_TRIES = 5;

/**
 * Opens the shards of a job. Those that a former attempt left are gone on from. Gives the version: 0
 * for new ones, which need their first parameters. Rejects with `conflict` where shards were left at
 * different versions: restore them from a checkpoint, or close them first.
 */
export async function openShards(access: ShardSetAccess): Promise<number> {
  const found = await eachServer(access, (peer, shard) =>
    peer.unary(shardMethods.open, encodeShard(access.spec, shard), brief(access, OPEN_MS)),
  );
  const versions = found.map(({ version }) => version);
  if (new Set(versions).size > 1 || new Set(found.map(({ ready }) => ready)).size > 1) {
    throw new AppError(
      "conflict",
      `the shards of job ${access.spec.jobId} were left at the versions ${versions.join(", ")}: ` +
        "restore them from a checkpoint, or close them and begin anew",
    );
  }
  return versions[0] ?? 0;
}

/** Ends the shards of a job; their checkpoints stay. */
export async function closeShards(access: ShardSetAccess): Promise<void> {
  await eachServer(access, (peer, shard) =>
    peer.unary(shardMethods.close, idOf(access.spec, shard), brief(access, OPEN_MS)),
  );
}

/** What each shard says of itself. */
export function shardStatuses(access: ShardSetAccess): Promise<ShardStatus__Output[]> {
  return eachServer(access, (peer, shard) =>
    peer.unary(shardMethods.status, idOf(access.spec, shard), brief(access, OPEN_MS)),
  );
}

/**
 * Writes one version of all shards to their servers' disks, and a copy of each piece to the next
 * server, for when one is lost. Under bsp to be called by a rank between its pull and its push; else
 * the shards are asked for the next version that all of them pass. Servers keep the job's latest
 * `keep` checkpoints; 0 for as many as they may.
 */
export async function checkpointShards(
  access: ShardSetAccess,
  name: string,
  keep = 0,
): Promise<ShardSetCheckpoint> {
  const { spec } = access;
  const pieces = spec.servers.length;
  for (let tried = 1; ; tried++) {
    const version = Math.max(...(await shardStatuses(access)).map((status) => status.version));
    try {
      const written = await eachServer(access, (peer, shard) => {
        const request = { id: idOf(spec, shard), version, name, keep };
        return peer.unary(shardMethods.checkpoint, request, brief(access, CHECKPOINT_MS));
      });
      if (pieces > 1) await replicate(access, name, keep);
      const bytes = written.reduce((sum, piece) => sum + piece.bytes, 0);
      return { name, version, pieces, servers: spec.servers, bytes };
    } catch (error) {
      if (toAppError(error).code !== "conflict" || tried >= VERSION_TRIES) throw error;
    }
  }
}

/** Names of the job's checkpoints of which the servers hold something, each once, in no order. */
export async function listCheckpoints(access: ShardSetAccess): Promise<string[]> {
  const { jobId } = access.spec;
  const found = await eachServer(access, (peer) =>
    peer.unary(shardMethods.listCheckpoints, { jobId }, brief(access, OPEN_MS)),
  );
  return [...new Set(found.flatMap(({ names }) => names))];
}

/**
 * Opens the shards and fills them from the newest checkpoint that is whole; `newestFirst` are what
 * `checkpointShards` gave, by any number of shards. Gives the one that was used and why others were
 * not. Rejects with `not_found` where none can be used.
 */
export async function restoreShards(
  access: ShardSetAccess,
  newestFirst: readonly ShardSetCheckpoint[],
): Promise<{ readonly used: ShardSetCheckpoint; readonly refused: readonly string[] }> {
  const refused: string[] = [];
  for (const checkpoint of newestFirst) {
    try {
      await restore(access, checkpoint);
      return { used: checkpoint, refused };
    } catch (error) {
      const { code, message } = toAppError(error);
      if (code !== "invalid_value" && code !== "not_found") throw error;
      refused.push(`${checkpoint.name}: ${message}`);
    }
  }
  const told = refused.join("; ") || "there is none";
  throw new AppError("not_found", `no checkpoint of job ${access.spec.jobId} can be used: ${told}`);
}

async function restore(access: ShardSetAccess, checkpoint: ShardSetCheckpoint): Promise<void> {
  const { spec } = access;
  // A server that is gone has its piece's copy on another of them.
  const sources = [...new Set([...checkpoint.servers, ...spec.servers])];
  await eachServer(access, (peer, shard) => {
    const open = encodeShard(spec, shard);
    const request = { open, name: checkpoint.name, sources, pieces: checkpoint.pieces };
    return peer.unary(shardMethods.restore, request, brief(access, RESTORE_MS));
  });
}

async function replicate(access: ShardSetAccess, checkpoint: string, keep: number): Promise<void> {
  const { servers } = access.spec;
  await eachServer(access, async (peer, shard) => {
    // This server takes the piece of the shard before.
    const piece = (shard + servers.length - 1) % servers.length;
    const source = servers[piece] ?? "";
    if (source === servers[shard]) return;
    const request = { id: idOf(access.spec, piece), checkpoint, source, keep };
    await peer.unary(shardMethods.replicate, request, brief(access, CHECKPOINT_MS));
  });
}

async function eachServer<Result>(
  { spec, credentials }: ShardSetAccess,
  work: (peer: Peer, shard: number) => Promise<Result>,
): Promise<Result[]> {
  const peers = spec.servers.map((address) => new Peer(address, credentials, "parameter-server"));
  try {
    return await Promise.all(
      peers.map((peer, shard) =>
        work(peer, shard).catch((cause: unknown) => {
          throw shardError(cause, `shard ${shard} at ${peer.address}`);
        }),
      ),
    );
  } finally {
    for (const peer of peers) peer.close();
  }
}

/** A server that cannot be reached is told by its code; what it refuses stays what it is. */
function shardError(cause: unknown, where: string): AppError {
  const error = toAppError(cause);
  if (error.code !== "unavailable" && error.code !== "deadline_exceeded") return error;
  return new AppError("shard_unavailable", `${where} does not serve: ${error.message}`, { cause });
}

function idOf({ jobId, attempt }: ShardSetSpec, shard: number) {
  return { jobId, attempt, shard };
}

function brief({ signal }: ShardSetAccess, deadlineMs: number) {
  return { deadlineMs, signal };
}
