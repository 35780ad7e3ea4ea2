import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { benchFolder } from "../../support/command-line.ts";
import { type Summary, summarizeSamples } from "../../support/statistics.ts";

const TIMEOUT_MS = 600_000;
const POLL_MS = 500;

/** The same number of short jobs through one system. */
export interface PeerRun {
  readonly system: string;
  /** What a job is there. */
  readonly unit: string;
  readonly jobs: number;
  /** Submissions a second; 0 for all at once. */
  readonly rate: number;
  /** From the first submission to the last start. */
  readonly startedPerSecond: number;
  /** From a job's submission to its start. */
  readonly startedMs: Summary;
}

export interface PeerLoad {
  readonly jobs: number;
  readonly rate: number;
}

/** Keyed by job: the wall-clock time of its submission and of its start, in ms. */
export function peerRun(
  what: Pick<PeerRun, "system" | "unit" | "rate">,
  sentMs: ReadonlyMap<string, number>,
  startedMs: ReadonlyMap<string, number>,
): PeerRun {
  const missing = [...sentMs.keys()].filter((id) => !startedMs.has(id));
  if (missing.length > 0) {
    throw new Error(`${what.system}: ${missing.length} of ${sentMs.size} jobs did not start`);
  }
  const firstMs = Math.min(...sentMs.values());
  const lastMs = Math.max(...startedMs.values());
  return {
    ...what,
    jobs: sentMs.size,
    startedPerSecond: sentMs.size / ((lastMs - firstMs) / 1_000),
    startedMs: summarizeSamples(
      [...sentMs].map(([id, ms]) => Math.max(0, (startedMs.get(id) ?? 0) - ms)),
    ),
  };
}

/** A folder into which jobs write when they start, each into a file of its name. */
export class StartFolder {
  readonly path: string;

  constructor() {
    mkdirSync(join(benchFolder, "data"), { recursive: true });
    this.path = mkdtempSync(join(benchFolder, "data/starts-"));
    // Jobs may run as other users.
    chmodSync(this.path, 0o777);
  }

  /** The command of a job; `name` may be a variable of the shell. */
  command(name: string): string {
    return `date +%s%N > ${this.path}/${name}`;
  }

  /** The start of each job, once `count` have started. */
  async read(count: number): Promise<ReadonlyMap<string, number>> {
    const deadline = performance.now() + TIMEOUT_MS;
    while (readdirSync(this.path).length < count && performance.now() < deadline) {
      await delay(POLL_MS);
    }
    // The last ones may be written now.
    await delay(POLL_MS);
    return new Map(
      readdirSync(this.path).map((name) => [
        name,
        Number(readFileSync(join(this.path, name), "utf8")) / 1e6,
      ]),
    );
  }
}

/** Calls `submit` for each job: at the rate, or one after the other. */
export async function submitEach(
  { jobs, rate }: PeerLoad,
  submit: (at: number) => Promise<void>,
): Promise<void> {
  const startedMs = performance.now();
  const pending: Promise<void>[] = [];
  for (let at = 0; at < jobs; at++) {
    const waitMs = rate > 0 ? startedMs + (at * 1_000) / rate - performance.now() : 0;
    if (waitMs > 0) await delay(waitMs);
    const submitted = submit(at);
    if (rate > 0) pending.push(submitted);
    else await submitted;
  }
  await Promise.all(pending);
}
