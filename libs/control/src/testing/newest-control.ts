import { NEWEST_VERSION } from "../cluster-version.ts";
import { ReplicatedControl } from "../replicated-control.ts";

/** An empty state at this build's version, as a new cluster has it once its masters have joined. */
export function newestControl(): ReplicatedControl {
  const control = new ReplicatedControl();
  control.state.cluster.set("version", NEWEST_VERSION);
  return control;
}
