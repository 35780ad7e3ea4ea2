import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { repositoryRoot } from "../../support/command-line.ts";
import { type PeerLoad, type PeerRun, peerRun } from "./short-jobs.ts";

const script = join(repositoryRoot, "bench/scale/peers/ray-tasks.py");

/** Calls of a function through Ray; none, with a line, where this Python has no Ray. */
export function runRay(python: string, loads: readonly PeerLoad[]): PeerRun[] {
  return loads.flatMap(({ jobs, rate }) => {
    const run = spawnSync(python, [script, String(jobs), String(rate)], {
      encoding: "utf8",
      timeout: 900_000,
      maxBuffer: 2 ** 28,
    });
    if (run.status !== 0) {
      const why = run.error?.message ?? run.stderr.trim().split("\n").at(-1);
      console.log(`\nno Ray beside ours: ${why} (name a Python that has it with --python)`);
      return [];
    }
    const times = JSON.parse(run.stdout) as [number, number][];
    const at = (place: 0 | 1) =>
      new Map(times.map((pair, task) => [String(task), pair[place] * 1_000]));
    return peerRun({ system: "Ray", unit: "call of a function", rate }, at(0), at(1));
  });
}
