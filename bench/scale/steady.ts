import { setTimeout as delay } from "node:timers/promises";
import { Fleet } from "./fleet.ts";
import { MastersUnderTest, type MasterUse } from "./masters.ts";

/** For attaching, in which each worker opens some connections to each master. */
const ATTACH_MS = 300_000;
const KIB = 1024;

/** What idle workers cost a master. */
export interface SteadyCost {
  readonly masters: number;
  readonly workers: number;
  readonly role: "leader" | "follower";
  /** The share of one core, in percent. */
  readonly corePercent: number;
  /** Resident memory of the master, and its growth since before the workers, for each of them. */
  readonly residentMiB: number;
  readonly kibPerWorker: number;
  readonly descriptorsPerWorker: number;
}

/** A cluster with its workers attached, and what the masters used before they came. */
export interface AttachedCluster {
  readonly masters: MastersUnderTest;
  readonly fleet: Fleet;
  readonly workers: number;
  readonly before: readonly MasterUse[];
  /** From the first worker's start until all are attached to all masters, with leases. */
  readonly attachMs: number;
}

/** Starts masters, and workers that attach to all of them. */
export async function startCluster(
  masterCount: number,
  workers: number,
  settleMs: number,
  profiles?: string,
): Promise<AttachedCluster> {
  const masters = await MastersUnderTest.start(masterCount, profiles);
  try {
    return await attachWorkers(masters, masterCount, workers, settleMs);
  } catch (error) {
    await masters.stop();
    throw error;
  }
}

async function attachWorkers(
  masters: MastersUnderTest,
  masterCount: number,
  workers: number,
  settleMs: number,
): Promise<AttachedCluster> {
  await delay(settleMs);
  const before = await masters.uses();
  const startedMs = performance.now();
  const fleet = await Fleet.start(masters, workers);
  const attached = await fleet.until(
    (report) =>
      report.sessions.length === workers &&
      report.attached.size === masterCount &&
      [...report.attached.values()].every(({ count }) => count === workers),
    ATTACH_MS,
  );
  if (!attached) {
    const { sessions, attached: by } = await fleet.report();
    const counts = [...by.values()].map(({ count }) => count);
    throw new Error(
      `after ${ATTACH_MS} ms ${counts} of ${workers} workers were attached, ${sessions.length} with a lease`,
    );
  }
  return { masters, fleet, workers, before, attachMs: performance.now() - startedMs };
}

/** What the masters use while the workers only send heartbeats and renew their leases. */
export async function measureSteady(
  { masters, workers, before }: AttachedCluster,
  settleMs: number,
  measureMs: number,
): Promise<SteadyCost[]> {
  await delay(settleMs);
  const first = await masters.uses();
  const startedMs = performance.now();
  await delay(measureMs);
  const last = await masters.uses();
  const ms = performance.now() - startedMs;
  return last.map((use) => {
    const named = (uses: readonly MasterUse[]) => uses.find(({ name }) => name === use.name) ?? use;
    const base = named(before);
    return {
      masters: last.length,
      workers,
      role: use.isLeader ? "leader" : "follower",
      corePercent: (100 * (use.cpuMs - named(first).cpuMs)) / ms,
      residentMiB: use.residentBytes / KIB ** 2,
      kibPerWorker: (use.residentBytes - base.residentBytes) / KIB / Math.max(1, workers),
      descriptorsPerWorker: (use.descriptors - base.descriptors) / Math.max(1, workers),
    };
  });
}
