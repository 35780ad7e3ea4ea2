import "reflect-metadata";
import type { RunningNode } from "@heddle/node-agent/run-node";
import { nodeModule, startNode } from "@heddle/node-agent/start-node";
import type { Log } from "@heddle/observability/logger";
import type { WorkerOptions } from "./config/worker-options.ts";
import type { EnginePorts } from "./inference/engine-ports.ts";
import { PodPlace } from "./tasks/pods/pod-place.ts";
import { workerModule } from "./worker.module.ts";
import { WorkerState } from "./worker-state.ts";

/** Starts a worker: serves models and tasks over gRPC, attached to every master. */
export async function startWorker(
  options: WorkerOptions,
  ports: EnginePorts,
  log: Log,
): Promise<RunningNode> {
  const { version, pods } = options;
  const podPlace = pods && (await PodPlace.find(pods));
  const machine = { ...options, kubernetes: podPlace?.offer };
  const node = nodeModule({ role: "worker", flags: options, version, log, machine });
  return startNode(workerModule(node, options, ports, podPlace), WorkerState);
}
