import { now } from "./simulated-task.ts";
import type { AttachedCluster } from "./steady.ts";

const TIMEOUT_MS = 180_000;

/** How a cluster came back after `kill -9` of its leader. */
export interface Reconnect {
  readonly masters: number;
  readonly workers: number;
  /** From the kill until another master led; with one master, until it was ready again. */
  readonly leaderMs: number;
  /** From the kill until every worker had a lease of the new leader. */
  readonly leasedMs: number;
  /** From the time at which the killed master was ready again until every worker was attached. */
  readonly attachedMs: number;
  /** The most attachments of one second, as a share of the workers. */
  readonly burst: number;
  /** CPU time of the new leader from the kill until all was well, for each worker. */
  readonly cpuMsPerWorker: number;
}

/** Kills the leader, and starts it again as a supervisor does. */
export async function measureReconnect(cluster: AttachedCluster): Promise<Reconnect> {
  const { masters, fleet, workers } = cluster;
  const { group } = masters;
  const leader = await group.leader();
  const address = await masters.address(leader);
  const termBefore = (await group.status(leader)).term;
  const killedMs = now();
  await group.end(leader, "SIGKILL");
  const others = group.runningNames.length;
  if (others === 0) await group.start(leader);
  const next = await group.leader();
  const leaderMs = now() - killedMs;
  const leased = await fleet.until(
    ({ sessions }) => sessions.filter(({ term }) => term > termBefore).length === workers,
    TIMEOUT_MS,
  );
  const grants = leased?.sessions.map(({ grantedMs }) => grantedMs) ?? [Number.NaN];
  if (others > 0) await group.start(leader);
  const readyMs = others > 0 ? now() : killedMs + leaderMs;
  const attached = await fleet.until(
    (report) => report.attached.get(address)?.count === workers,
    TIMEOUT_MS,
  );
  const lastMs = attached?.attached.get(address)?.lastMs ?? Number.NaN;
  const uses = await masters.uses();
  const leading = uses.find(({ name }) => name === next);
  const before = cluster.before.find(({ name }) => name === next);
  const cpuMs = (leading?.cpuMs ?? 0) - (others > 0 ? (before?.cpuMs ?? 0) : 0);
  return {
    masters: uses.length,
    workers,
    leaderMs,
    leasedMs: Math.max(...grants) - killedMs,
    attachedMs: Math.max(0, lastMs - readyMs),
    burst: (attached?.mostAttemptsInSecond ?? 0) / workers,
    cpuMsPerWorker: cpuMs / workers,
  };
}
