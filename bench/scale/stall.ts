import { setTimeout as delay } from "node:timers/promises";
import { measureJobStorm } from "./job-storm.ts";
import type { AttachedCluster } from "./steady.ts";

/** The storm's pace on a busy machine, to choose a moment within it. */
const JOBS_PER_SECOND = 150;

/** A storm of jobs in which the leader's process was stopped once, as by a stall of its machine. */
export interface StalledStorm {
  readonly masters: number;
  readonly workers: number;
  readonly jobs: number;
  /** From the first submission to the stall, and its length. */
  readonly beganMs: number;
  readonly stalledMs: number;
  /** From the end of the stall until every job was seen to end. */
  readonly settledMs: number;
  readonly unseen: number;
  readonly refused: number;
}

/** Stops the leader with SIGSTOP at a random moment, for a random time between the two. */
export async function measureStalledStorm(
  cluster: AttachedCluster,
  jobs: number,
  [leastMs, mostMs]: readonly [number, number],
): Promise<StalledStorm> {
  const { group } = cluster.masters;
  const pid = group.pid(await group.leader()) ?? 0;
  const stalledMs = leastMs + Math.random() * (mostMs - leastMs);
  const beganMs = (Math.random() * jobs * 1_000) / JOBS_PER_SECOND;
  const stall = async () => {
    await delay(beganMs);
    process.kill(pid, "SIGSTOP");
    await delay(stalledMs);
    process.kill(pid, "SIGCONT");
    return performance.now();
  };
  const [continuedAtMs, { masters, workers, unseen, refused }] = await Promise.all([
    stall(),
    measureJobStorm(cluster, jobs, 0),
  ]);
  const settledMs = performance.now() - continuedAtMs;
  return { masters, workers, jobs, beganMs, stalledMs, settledMs, unseen, refused };
}
