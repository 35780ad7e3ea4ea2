import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Child } from "../support/child-process.ts";
import { benchFolder } from "../support/command-line.ts";
import type { MastersUnderTest } from "./masters.ts";
import type { TaskTimes, WorkersReport, WorkersSettings } from "./settings.ts";

/** Workers of a process, which are a rack: a process that is killed takes its rack along. */
const RACK_WORKERS = 100;
const READY_MS = 120_000;
const REPORT_MS = 60_000;
const program = fileURLToPath(new URL("./workers-main.ts", import.meta.url));

/** What all simulated workers report. */
export interface FleetReport extends Omit<WorkersReport, "attachedMs"> {
  /** Attached workers by host:port of the master, and when the last of them attached. */
  readonly attached: ReadonlyMap<string, { readonly count: number; readonly lastMs: number }>;
}

/** Simulated workers in processes of up to 100. */
export class Fleet {
  readonly #racks: Child[] = [];
  readonly #masters: MastersUnderTest;

  private constructor(masters: MastersUnderTest) {
    this.#masters = masters;
  }

  /** Resolves when each has begun to attach. */
  static async start(masters: MastersUnderTest, count: number): Promise<Fleet> {
    const fleet = new Fleet(masters);
    for (let first = 0; first < count; first += RACK_WORKERS) {
      await fleet.addRack(first, Math.min(RACK_WORKERS, count - first));
    }
    return fleet;
  }

  async addRack(first: number, count: number): Promise<void> {
    const { group, clusterToken } = this.#masters;
    const rack = `rack-${first / RACK_WORKERS + 1}`;
    const settings: WorkersSettings = {
      first,
      count,
      rack,
      masters: group.grpcAddresses,
      clusterToken,
      folder: join(group.folder, "workers"),
    };
    const child = new Child({
      name: rack,
      command: process.execPath,
      args: ["--max-semi-space-size=8", program, JSON.stringify(settings)],
      logFile: join(benchFolder, `logs/scale-${rack}.log`),
      input: true,
    });
    this.#racks.push(child);
    await child.line(/^ready$/, READY_MS);
  }

  async report(): Promise<FleetReport> {
    const reports = await Promise.all(this.#racks.map(reportOf));
    const attached = new Map<string, { count: number; lastMs: number }>();
    for (const { attachedMs } of reports) {
      for (const [master, times] of Object.entries(attachedMs)) {
        const { count, lastMs } = attached.get(master) ?? { count: 0, lastMs: 0 };
        const lastOf = Math.max(lastMs, ...times);
        attached.set(master, { count: count + times.length, lastMs: lastOf });
      }
    }
    const sum = (of: (report: WorkersReport) => number) =>
      reports.reduce((total, report) => total + of(report), 0);
    return {
      attached,
      sessions: reports.flatMap(({ sessions }) => sessions),
      tasks: reports.flatMap(({ tasks }): readonly TaskTimes[] => tasks),
      attempts: sum(({ attempts }) => attempts),
      mostAttemptsInSecond: sum(({ mostAttemptsInSecond }) => mostAttemptsInSecond),
      cpuMs: sum(({ cpuMs }) => cpuMs),
    };
  }

  /** Reports until the condition holds; undefined when the time has passed. */
  async until(
    isReached: (report: FleetReport) => boolean,
    timeoutMs: number,
  ): Promise<FleetReport | undefined> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const report = await this.report();
      if (isReached(report)) return report;
      if (performance.now() > deadline) return undefined;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  /** Kills the newest rack: its workers do not detach first. */
  killRack(): void {
    const rack = this.#racks.pop();
    if (rack) process.kill(rack.pid, "SIGKILL");
  }

  async stop(): Promise<void> {
    await Promise.all(this.#racks.map((rack) => rack.stop()));
  }
}

async function reportOf(rack: Child): Promise<WorkersReport> {
  rack.lines.length = 0;
  rack.writeLine("report");
  const [line] = await rack.line(/^\{.*\}$/, REPORT_MS);
  return JSON.parse(line) as WorkersReport;
}
