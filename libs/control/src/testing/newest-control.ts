import { NEWEST_VERSION } from "../cluster-version.ts";
import { ReplicatedControl } from "../replicated-control.ts";

/** An empty state by the rules of this build, as a new cluster has it once its masters have met. */
export function newestControl(): ReplicatedControl {
  const control = new ReplicatedControl();
  control.state.cluster.set("version", NEWEST_VERSION);
  return control;
}
