import { commandLine } from "../support/proc-files.ts";
import type { WatchedProcess } from "../support/process-sampler.ts";

/** A process that a cluster is made of. */
export interface NodeProcess extends WatchedProcess {
  /** For example `worker-2`. */
  readonly name: string;
  /** Its data directory. */
  readonly folder: string;
}

const NODE_ROLES: ReadonlySet<string> = new Set(["master", "worker", "parameter-server"]);

/** The nodes among a cluster's processes; one that restarts is absent. */
export function nodesAmong(processes: readonly WatchedProcess[]): readonly NodeProcess[] {
  return processes
    .filter(({ role }) => NODE_ROLES.has(role))
    .map((process) => {
      const line = commandLine(process.pid);
      const flagValue = (flag: string) => line[line.indexOf(flag) + 1] ?? "";
      return { ...process, name: flagValue("--name"), folder: flagValue("--data") };
    });
}
