import type { ClusterFault } from "./cluster-faults.ts";
import { type ClusterResult, type ClusterRun, simulateCluster } from "./simulate-cluster.ts";

/** Runs a failed seed for a shorter time and without each of its faults, as long as it still fails. */
export async function shrinkRun(run: ClusterRun, failed: ClusterResult): Promise<ClusterRun> {
  let smallest = run;
  const attempt = async (change: Partial<ClusterRun>) => {
    const smaller = { ...smallest, ...change, onTrace: undefined };
    const { violation } = await simulateCluster(smaller);
    if (violation?.invariant === failed.violation?.invariant) smallest = smaller;
  };
  const shorter = Math.ceil(failed.failedAtSeconds);
  if (shorter < (run.seconds ?? 0)) await attempt({ seconds: shorter });
  for (const fault of failed.faults.keys()) {
    await attempt({ without: [...(smallest.without ?? []), fault as ClusterFault] });
  }
  return smallest;
}
