import { heddleUp } from "../../support/heddle-up.ts";
import { submitAll } from "../job-storm.ts";
import { type PeerLoad, type PeerRun, peerRun, StartFolder } from "./short-jobs.ts";

const WORKERS = 4;
const RESOURCES = { cpu_cores: 0.02, memory_gb: 0.02 };

/** Jobs through a whole local cluster: every one is a process of a real worker. */
export async function runOurJobs(loads: readonly PeerLoad[]): Promise<PeerRun[]> {
  const cluster = await heddleUp(["--profile", "tiny", "--workers", String(WORKERS)]);
  try {
    const runs: PeerRun[] = [];
    for (const load of loads) {
      const folder = new StartFolder();
      const command = folder.command("$HEDDLE_JOB_ID");
      const bodyOf = (at: number) => {
        return { name: `peer-${load.rate}-${at}`, command, resources: RESOURCES };
      };
      const { url, key } = cluster.api;
      const { sentMs, refused } = await submitAll({ url, key, ...load, bodyOf });
      if (refused > 0) throw new Error(`${refused} submissions were refused`);
      const startedMs = await folder.read(load.jobs);
      const unit = "job over HTTP, a process";
      runs.push(peerRun({ system: "Heddle", unit, rate: load.rate }, sentMs, startedMs));
    }
    return runs;
  } finally {
    await cluster.stop();
  }
}
