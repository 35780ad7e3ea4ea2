import { devicesOfLabel } from "@heddle/contracts/gpu-devices";
import { LIMITED_TASKS } from "@heddle/control/cluster-version";
import type { NodeOffer, ServingHold } from "@heddle/control/jobs/records/records";
import type { MachineShare } from "./machine-offers.ts";
import type { NodeView } from "./node-directory.ts";

const BYTES_PER_GB = 1e9;

/** Device names as in a job's `gpu_type`; a name precedes its prefixes. */
const GPU_TYPE =
  /\b(GB[23]00|B[123]00|GH200|H[128]00|H20|A800|A100|A40|A30|A10G|A10|A16|A2|L40S|L40|L20|L4|V100S?|T4|P100|P40|P4|K80|RTX ?[A-Z]?\d{3,4}(?: ?Ti)?|MI\d{2,3}[AX]?)\b/i;

/**
 * An attached worker's offer to jobs as a replicated record; undefined for none. `share` is its
 * share of the machine, `version` the cluster's.
 */
export function nodeOfferOf(
  view: NodeView,
  share: MachineShare,
  version: number,
): NodeOffer | undefined {
  const { offer, gpus } = view;
  if (!offer) return undefined;
  const memoryBytes = gpus.length === 0 ? 0 : Math.min(...gpus.map((gpu) => gpu.memoryBytes));
  return {
    id: view.id,
    name: view.name,
    address: view.address,
    incarnation: offer.incarnation,
    cpuMilli: share.cpuMilli,
    memoryMib: share.memoryMib,
    localSsdGb: share.localSsdGb,
    ioOperationsPerSec: share.ioOperationsPerSec,
    networkMbps: share.networkMbps,
    ...(offer.maxTasks && version >= LIMITED_TASKS ? { maxTasks: Math.max(1, share.tasks) } : {}),
    gpuType: gpuTypeOf(gpus[0]?.name ?? ""),
    gpuMemoryGb: Math.floor(memoryBytes / BYTES_PER_GB),
    gpuCount: gpus.reduce((count, { index }) => Math.max(count, index + 1), 0),
    simulated: gpus.some((gpu) => gpu.simulated),
    labels: offer.labels,
    taints: offer.taints,
    rack: offer.rack,
    fabric: offer.fabric,
    executors: offer.executors,
    algorithms: offer.algorithms,
    ...(view.hostId ? { hostId: view.hostId } : {}),
    ...(offer.environments.length > 0 ? { environments: offer.environments } : {}),
    ...(view.limits?.length ? { limitIds: view.limits.map(({ id }) => id) } : {}),
    ...(share.replicasMib > 0 ? { replicasMib: share.replicasMib } : {}),
  };
}

/** The offer of a worker that has lost its executors, so that no task goes there. */
export function closedOffer(view: NodeView, known: NodeOffer): NodeOffer | undefined {
  if (view.offer || view.kind !== "worker") return undefined;
  return { ...known, incarnation: view.incarnation, executors: [], algorithms: [] };
}

/** `NVIDIA H100 80GB HBM3` and `H100-80GB` are both an `H100`; an unknown name is kept. */
export function gpuTypeOf(name: string): string {
  return GPU_TYPE.exec(name)?.[1]?.replace(" ", "").toUpperCase() ?? name;
}

/** The devices that replicas of deployed models hold on the node. */
export function servingHoldsOf({ replicas, gpus }: NodeView): ServingHold[] {
  return replicas.flatMap(({ deployment, phase, info }) => {
    const known = new Set(gpus.map(({ index }) => index));
    const devices = devicesOfLabel(info?.device).filter((device) => known.has(device));
    return phase !== "failed" && devices.length > 0 ? [{ deployment, devices }] : [];
  });
}
