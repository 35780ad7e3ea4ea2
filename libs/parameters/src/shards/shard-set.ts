import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import type { ShardStatus__Output } from "@heddle/contracts/generated/heddle/v1/ShardStatus";
import type { CallerCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { oneVersion } from "./checkpoint-versions.ts";
import { shardMethods } from "./shard-methods.ts";
import { encodeShard, fragmentsOf, type ShardSetSpec } from "./shard-spec.ts";

/** The job of some shards, and the access to their servers. */
export interface ShardSetAccess {
  readonly spec: ShardSetSpec;
  readonly credentials: CallerCredentials;
  readonly signal: AbortSignal;
  /**
   * Addresses of servers that hold pieces of the job's checkpoints, or may take copies. The shards'
   * servers may be among them, and are always asked.
   */
  readonly holders?: readonly string[] | undefined;
  /** Servers that may be down: asked last, for what no other has. */
  readonly lost?: readonly string[] | undefined;
}

/** A checkpoint to look for. */
export interface HeldCheckpoint {
  readonly name: string;
  /** Shards that wrote it. */
  readonly pieces: number;
  /** Servers that hold its pieces or copies of them; they are asked first. */
  readonly servers: readonly string[];
}

/** A written checkpoint of all shards at one version; `servers` are by shard. */
export interface ShardSetCheckpoint extends HeldCheckpoint {
  readonly version: number;
  readonly bytes: number;
  /** Why pieces have no copy on a second server, one line for each; empty where all have. */
  readonly uncopied: readonly string[];
}

const OPEN_MS = 30_000;
const CHECKPOINT_MS = 300_000;
const RESTORE_MS = 600_000;
/** Errors of a checkpoint that leave the one before it to try. */
const PASSED_OVER: ReadonlySet<ErrorCode> = new Set([
  "invalid_value",
  "not_found",
  "shard_unavailable",
]);
/**
 * Under ssp and asp shards advance meanwhile, under bsp one may lack a lost worker's part: how often
 * their version is read again.
 */
const VERSION_TRIES = 5;
/** How many servers are asked to take a piece's copy before the checkpoint does without it. */
const COPY_TRIES = 3;

/**
 * Opens the shards of a job, or continues with those that an earlier attempt left. Returns the
 * version: 0 for new ones, which need their first parameters. Rejects with `conflict` where shards
 * are at different versions: restore them from a checkpoint, or close them first.
 */
export async function openShards(access: ShardSetAccess): Promise<number> {
  // A server opens one at a time; sent all at once, the last request would time out in the queue.
  const turns = new Map<string, Promise<unknown>>();
  const found = await eachServer(access, (peer, shard) => {
    const open = () =>
      peer.unary(shardMethods.open, encodeShard(access.spec, shard), brief(access, OPEN_MS));
    const turn = (turns.get(peer.address) ?? Promise.resolve()).then(open);
    turns.set(peer.address, turn);
    return turn;
  });
  const versions = found.map(({ version }) => version);
  if (new Set(versions).size > 1 || new Set(found.map(({ ready }) => ready)).size > 1) {
    throw new AppError(
      "conflict",
      `the shards of job ${access.spec.jobId} were left at the versions ${versions.join(", ")}: ` +
        "restore them from a checkpoint, or close them and start from the beginning",
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

/** The status of each shard. */
export function shardStatuses(access: ShardSetAccess): Promise<ShardStatus__Output[]> {
  return eachServer(access, (peer, shard) =>
    peer.unary(shardMethods.status, idOf(access.spec, shard), brief(access, OPEN_MS)),
  );
}

/**
 * Writes one version of all shards to their servers' disks. Each piece is copied to the next of the
 * job's servers or of `holders` that takes it.
 * - Under bsp a rank calls it between its pull and its push; else the shards write the next version
 *   that all of them pass. One that lags behind for good writes what it has as that version.
 * - Rejects with `conflict` where the shards come to no common version within seconds.
 * - Servers keep the job's latest `keep` checkpoints; 0 for the maximum.
 */
export async function checkpointShards(
  access: ShardSetAccess,
  name: string,
  keep = 0,
): Promise<ShardSetCheckpoint> {
  const { spec } = access;
  const pieces = spec.servers.length;
  for (let tried = 1; ; tried++) {
    const versions = versionsToWrite(spec, await shardStatuses(access));
    try {
      const written = await eachServer(access, (peer, shard) => {
        const request = { id: idOf(spec, shard), version: versions[shard] ?? 0, name, keep };
        return peer.unary(shardMethods.checkpoint, request, brief(access, CHECKPOINT_MS));
      });
      const uncopied = await copyPieces(access, name, keep);
      const bytes = written.reduce((sum, piece) => sum + piece.bytes, 0);
      const version = Math.max(...versions);
      return { name, version, pieces, servers: spec.servers, bytes, uncopied };
    } catch (error) {
      if (toAppError(error).code !== "conflict" || tried >= VERSION_TRIES) throw error;
    }
  }
}

/** Indexed by shard: the latest version of its fragment, for which the others of the fragment wait. */
function versionsToWrite(
  spec: ShardSetSpec,
  statuses: readonly { readonly version: number }[],
): number[] {
  const each = spec.servers.length / fragmentsOf(spec);
  const fragmentOf = (shard: number) => Math.floor(shard / each);
  return statuses.map((_, shard) =>
    Math.max(
      ...statuses
        .filter((_, other) => fragmentOf(other) === fragmentOf(shard))
        .map(({ version }) => version),
    ),
  );
}

/**
 * The job's checkpoints on the servers by name, each with the addresses that hold some of it. An
 * unreachable server is skipped while another can be asked.
 */
export async function listCheckpoints(
  access: ShardSetAccess,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const { jobId } = access.spec;
  const asked = await Promise.allSettled(
    allHolders(access).map((address) =>
      onServer(access, address, async (peer) => {
        const { names } = await peer.unary(
          shardMethods.listCheckpoints,
          { jobId },
          brief(access, OPEN_MS),
        );
        return { address, names };
      }),
    ),
  );
  const answers = asked.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const failed = asked.find((each) => each.status === "rejected");
  if (answers.length === 0 && failed) throw toAppError(failed.reason);
  const found = new Map<string, string[]>();
  for (const { address, names } of answers) {
    for (const name of names) found.set(name, [...(found.get(name) ?? []), address]);
  }
  return found;
}

/**
 * Opens the shards and fills them from the newest undamaged checkpoint of `newestFirst`, whatever
 * its number of shards. Returns that one, and why others were skipped. `persist` may repeat what
 * fails with `shard_unavailable`, as an unreachable server may have what the others lack.
 * - Rejects with `invalid_value` if all are damaged, with `shard_unavailable` if a server was down
 *   that may have one, and else with `not_found`.
 * - Rejects with `unprocessable` at the first that is of a model of another form.
 */
export async function restoreShards<Checkpoint extends HeldCheckpoint>(
  access: ShardSetAccess,
  newestFirst: readonly Checkpoint[],
  persist = (work: () => Promise<void>): Promise<void> => work(),
): Promise<{ readonly used: Checkpoint; readonly refused: readonly string[] }> {
  const refused: string[] = [];
  const codes = new Set<ErrorCode>();
  for (const checkpoint of newestFirst) {
    try {
      await persist(() => restore(access, checkpoint));
      return { used: checkpoint, refused };
    } catch (error) {
      const { code, message } = toAppError(error);
      if (!PASSED_OVER.has(code)) throw error;
      refused.push(`${checkpoint.name}: ${message}`);
      codes.add(code);
    }
  }
  const reasons = refused.join("; ") || "there is none";
  const message = `no checkpoint of job ${access.spec.jobId} can be used: ${reasons}`;
  throw new AppError(worstOf(codes), message);
}

function worstOf(codes: ReadonlySet<ErrorCode>): ErrorCode {
  if (codes.has("shard_unavailable")) return "shard_unavailable";
  return codes.size === 1 && codes.has("invalid_value") ? "invalid_value" : "not_found";
}

async function restore(access: ShardSetAccess, checkpoint: HeldCheckpoint): Promise<void> {
  const { spec } = access;
  // The copy of a lost server's piece is on another of them.
  const { lost = [] } = access;
  const sources = [...new Set([...checkpoint.servers, ...allHolders(access), ...lost])];
  const restored = await eachServer(access, (peer, shard) => {
    const open = encodeShard(spec, shard);
    const request = { open, name: checkpoint.name, sources, pieces: checkpoint.pieces };
    return peer.unary(shardMethods.restore, request, brief(access, RESTORE_MS));
  });
  // Each shard reads only the pieces that it needs, and cannot check that all are of its version.
  const each = spec.servers.length / fragmentsOf(spec);
  for (let first = 0; first < restored.length; first += each) {
    const versions = restored.slice(first, first + each).map(({ version }) => version);
    oneVersion(versions as [number, ...number[]], checkpoint.name, "the shards");
  }
}

/** Copies each piece to one more server. Resolves with the failures. */
async function copyPieces(
  access: ShardSetAccess,
  checkpoint: string,
  keep: number,
): Promise<string[]> {
  const { spec } = access;
  const ring = allHolders(access);
  const failures = await Promise.all(
    spec.servers.map(async (source, piece) => {
      const at = ring.indexOf(source);
      const others = [...ring.slice(at + 1), ...ring.slice(0, at)];
      const request = { id: idOf(spec, piece), checkpoint, source, keep };
      return copyPiece(access, request, others);
    }),
  );
  return failures.flatMap((why) => why ?? []);
}

/** Tries the servers in order; resolves with why all failed, or undefined after a success. */
async function copyPiece(
  access: ShardSetAccess,
  request: {
    readonly id: ReturnType<typeof idOf>;
    readonly checkpoint: string;
    readonly source: string;
    readonly keep: number;
  },
  others: readonly string[],
): Promise<string | undefined> {
  const failures: string[] = [];
  for (const address of others.slice(0, COPY_TRIES)) {
    try {
      await onServer(access, address, (peer) =>
        peer.unary(shardMethods.replicate, request, brief(access, CHECKPOINT_MS)),
      );
      return undefined;
    } catch (error) {
      access.signal.throwIfAborted();
      failures.push(`${address}: ${toAppError(error).message}`);
    }
  }
  if (failures.length === 0) return undefined;
  const { shard } = request.id;
  return `piece ${shard} of checkpoint ${request.checkpoint} has no copy: ${failures.join("; ")}`;
}

/** The job's own servers and the additional ones, each once, in the same order for all ranks. */
function allHolders({ spec, holders = [] }: ShardSetAccess): string[] {
  return [...new Set([...holders, ...spec.servers])].filter((address) => address !== "");
}

async function onServer<Result>(
  { credentials }: ShardSetAccess,
  address: string,
  work: (peer: Peer) => Promise<Result>,
): Promise<Result> {
  const peer = new Peer(address, credentials, "parameter-server");
  try {
    return await work(peer);
  } finally {
    peer.close();
  }
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

/** An unreachable server becomes `shard_unavailable`; a refusal keeps its code. */
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
