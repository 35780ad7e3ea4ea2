import type { NodeAgent } from "@heddle/node-agent/node-agent";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";

/** The injection token of the TaskNode. */
export const TASK_NODE = Symbol("TaskNode");

/** A GPU as tasks get it. */
interface TaskGpu {
  readonly index: number;
  readonly simulated: boolean;
  /** Empty for a healthy one. */
  readonly fault: string;
}

/** The node that tasks run on. */
export interface TaskNode {
  readonly id: string;
  readonly name: string;
  /** Its address for the other nodes. */
  readonly host: string;
  /** The version of the worker's program; for the lineage of artifacts. */
  readonly version: string;
  readonly credentials: NodeCredentials;
  readonly log: Log;
  gpus(): readonly TaskGpu[];
}

export function taskNode({
  nodeId: id,
  name,
  address,
  credentials,
  machine,
  options: { version, log },
}: NodeAgent): TaskNode {
  const host = address.slice(0, address.lastIndexOf(":"));
  const gpus = () =>
    machine.gpus().map(({ index = 0, simulated = false, fault = "" }) => ({
      index,
      simulated,
      fault,
    }));
  return { id, name, host, version, credentials, log, gpus };
}
