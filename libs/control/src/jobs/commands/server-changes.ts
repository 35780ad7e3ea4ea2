import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import { messagesAt } from "../../state-messages.ts";
import type { JoinServerCommand, LoseServersCommand } from "../records/commands.ts";
import type { ServerRecord } from "../records/records.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

const MAX_SERVERS = 1_000;

/** A parameter server joins or returns. A new process has none of the old one's shards. */
export function joinServer(change: JobsTransaction, { server }: JoinServerCommand): ControlReply {
  const { servers } = change.state;
  const { id, name, address, incarnation } = server;
  if (!/^[\x21-\x7e]{1,128}$/.test(id)) {
    return refuse("invalid_value", "a node's id is 1 to 128 characters");
  }
  const known = servers.get(id);
  if (!known && servers.size >= MAX_SERVERS && !forgetLostServer(change)) {
    return refuse("overloaded", `the cluster holds ${MAX_SERVERS} parameter servers`);
  }
  const { index: changedIndex, atMs } = change.now;
  const joinedAtMs = known?.joinedAtMs ?? atMs;
  const hasRestarted = known?.state === "ready" && known.incarnation !== incarnation;
  const record = { id, name, address, incarnation, state: "ready" as const };
  const messages = messagesAt(change.version);
  const why = hasRestarted ? messages.shardsGone : undefined;
  change.putServer({ ...record, joinedAtMs, changedIndex }, why);
  if (hasRestarted) endAttempts(change, id, messages.serverRestarted(name));
  return ACCEPTED;
}

/** Ends every attempt with a shard there; the next attempt places its shards elsewhere. */
export function loseServers(
  change: JobsTransaction,
  { serverIds }: LoseServersCommand,
): ControlReply {
  for (const id of serverIds) {
    const server = change.state.servers.get(id);
    if (!server || server.state === "lost") continue;
    const { index: changedIndex, atMs: lostAtMs } = change.now;
    change.putServer({ ...server, state: "lost", lostAtMs, changedIndex });
    endAttempts(change, id, `the parameter server ${server.name} is lost`);
  }
  return ACCEPTED;
}

/** An infrastructure loss: it uses no retry, and no loss tolerance covers it. */
function endAttempts(change: JobsTransaction, serverId: string, what: string): void {
  const jobIds = [...(change.index.shardsByServer.get(serverId)?.keys() ?? [])];
  const jobs = jobIds.map((id) => change.state.jobs.get(id)!);
  // The index's order depends on how it was built, so it may differ between masters.
  jobs.sort((a, b) => a.submittedIndex - b.submittedIndex);
  for (const job of jobs) {
    const shard = job.shards?.indexOf(serverId) ?? 0;
    const message = `${what}, which held shard ${shard}`;
    const failure = { reason: "NodeLost" as const, message, nodeId: serverId };
    change.move(job, { type: "nodesLost", within: false, isSilent: false, failure });
  }
}

/** Makes room: drops the server that was lost first. */
function forgetLostServer({ state: { servers } }: JobsTransaction): boolean {
  let oldest: ServerRecord | undefined;
  for (const server of servers.values()) {
    if (server.state !== "lost") continue;
    if (!oldest || (server.lostAtMs ?? 0) < (oldest.lostAtMs ?? 0)) oldest = server;
  }
  return oldest !== undefined && servers.delete(oldest.id);
}
