import { servingPlaces } from "@heddle/control/jobs/scheduling/replica-claims";
import type { QueuedJob } from "@heddle/scheduler/model";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { gpusText } from "../../nodes/replicas/stage-devices.ts";
import { taskUses } from "../../nodes/task-uses.ts";

const BYTES_PER_MIB = 2 ** 20;
/** Workers, and holders of GPUs of each, that are named. */
const MAX_NAMED = 8;

/** The GPUs of a worker that may have a stage. */
interface WorkerGpus {
  readonly name: string;
  readonly healthy: number;
  readonly free: number;
  /** What has the others. */
  readonly holders: readonly string[];
}

/** Which GPUs the stages of a deployment wait for, who has these, and the least that would start them. */
export function stagesWait(control: ControlPlane, { entry, tasks, request }: QueuedJob): string {
  const deployment = entry.kind === "replica" ? entry.deployment : "";
  const { memoryBytes = 0, nodes = [] } = control.state.stageClaims.get(deployment) ?? {};
  const workers = nodes
    .flatMap((id) => gpusOf(control, id) ?? [])
    .toSorted((a, b) => b.free - a.free);
  const mib = Math.ceil(memoryBytes / BYTES_PER_MIB);
  const need = `${tasks} ${tasks === 1 ? "stage" : "stages"} x ${gpusText(request)} with ${mib} MiB, each on another worker`;
  const named = workers.slice(0, MAX_NAMED).map(({ name, free, healthy, holders }) => {
    const by = holders.length > 0 ? ` (${holders.slice(0, MAX_NAMED).join(", ")})` : "";
    return `${free} of ${healthy} on ${name}${by}`;
  });
  const now = named.join(", ") || "none";
  return `InsufficientGpu: ${need}; free now: ${now}; ${leastChange(workers, tasks, request.gpus)}`;
}

function leastChange(workers: readonly WorkerGpus[], stages: number, gpus: number): string {
  const missing = stages - workers.filter(({ free }) => free >= gpus).length;
  if (missing <= 0) return "it starts when what is ahead of it in the queue has started";
  const able = workers.filter(({ free, healthy }) => free < gpus && healthy >= gpus);
  const freed = able.slice(0, missing).map(({ name, free }) => {
    const count = gpus - free;
    return `${count} more GPU${count === 1 ? "" : "s"} of ${name}`;
  });
  const more = `${missing} more such ${missing === 1 ? "worker joins" : "workers join"}`;
  if (freed.length < missing) return `it starts when ${more}`;
  const are = missing === 1 && gpus - able[0]!.free === 1 ? "is" : "are";
  return `it starts when ${freed.join(" and ")} ${are} free, or ${more}`;
}

function gpusOf(control: ControlPlane, nodeId: string): WorkerGpus | undefined {
  const node = control.state.nodes.get(nodeId);
  if (node?.state !== "ready") return undefined;
  const holds = [
    // Its name may be another project's.
    ...servingPlaces(control.jobs, node).map(({ devices }) => ({ by: "a model", devices })),
    ...taskUses(control, nodeId).map(({ id, gpus }) => {
      return { by: `job ${id}`, devices: gpus.map(({ index }) => index) };
    }),
  ].filter(({ devices }) => devices.length > 0);
  const taken = new Set(holds.flatMap(({ devices }) => devices));
  const { devices } = control.jobs.snapshotOf(node);
  const healthy = [...devices.keys()].filter((index) => devices[index]!.healthy);
  return {
    name: node.offer.name,
    healthy: healthy.length,
    free: healthy.filter((index) => !taken.has(index)).length,
    holders: [...new Set(holds.map(({ by }) => by))],
  };
}
