import { Ledger, locate, nodePositions } from "./ledger.ts";
import type { GangStart, TaskRequest } from "./model.ts";
import type { SchedulingInput } from "./round.ts";
import { type Shape, ShapeTable } from "./shape.ts";

/** Why apply must refuse one start. */
export interface Refusal {
  readonly jobId: string;
  readonly problem:
    | "unknown_job"
    | "partial_gang"
    | "unknown_node"
    | "node_not_eligible"
    | "wrong_devices"
    | "over_capacity";
}

/**
 * The starts of a plan that the snapshot does not allow, in the plan's order; an accepted start
 * takes its capacity before the next is looked at. Apply runs this on the state it is about to
 * change, so that a stale plan cannot commit a device twice or a part of a gang.
 */
export function refusals(
  input: Omit<SchedulingInput, "nowMs">,
  starts: readonly GangStart[],
): Refusal[] {
  const { snapshot, queue, settings } = input;
  const ledger = Ledger.ofCapacity(snapshot.nodes, settings.overcommitRatio);
  const shapes = new ShapeTable(snapshot.nodes);
  const positions = nodePositions(snapshot);
  for (const { request, placements } of snapshot.running) {
    const shape = shapes.of(request);
    for (const { node, devices } of locate(placements, positions)) {
      ledger.take(node, shape, devices);
    }
  }
  const jobs = new Map(queue.map((job) => [job.id, job]));
  const refused: Refusal[] = [];
  for (const start of starts) {
    const job = jobs.get(start.jobId);
    jobs.delete(start.jobId);
    const problem = !job
      ? "unknown_job"
      : start.placements.length !== job.tasks
        ? "partial_gang"
        : takeGang(ledger, shapes.of(job.request), start, positions);
    if (problem) refused.push({ jobId: start.jobId, problem });
  }
  return refused;
}

/** Takes each task, or gives all back and says what is wrong. */
function takeGang(
  ledger: Ledger,
  shape: Shape,
  start: GangStart,
  positions: ReadonlyMap<string, number>,
): Refusal["problem"] | undefined {
  const taken: { node: number; devices: readonly number[] }[] = [];
  const giveBack = (problem: Refusal["problem"]): Refusal["problem"] => {
    for (const { node, devices } of taken) ledger.release(node, shape, devices);
    return problem;
  };
  for (const { nodeId, devices } of start.placements) {
    const node = positions.get(nodeId);
    if (node === undefined) return giveBack("unknown_node");
    if (shape.eligible[node] === 0) return giveBack("node_not_eligible");
    if (!distinct(devices, shape.request)) return giveBack("wrong_devices");
    if (!ledger.scalarsFit(node, shape)) return giveBack("over_capacity");
    if (!devices.every((device) => hasRoom(ledger, node, device, shape))) {
      return giveBack("over_capacity");
    }
    ledger.take(node, shape, devices);
    taken.push({ node, devices });
  }
  return undefined;
}

function distinct(devices: readonly number[], { gpus }: TaskRequest): boolean {
  return devices.length === gpus && new Set(devices).size === devices.length;
}

function hasRoom(ledger: Ledger, node: number, device: number, shape: Shape): boolean {
  if (device >= ledger.deviceCount[node]!) return false;
  return ledger.gpuFree[node * ledger.stride + device]! >= shape.milli;
}
