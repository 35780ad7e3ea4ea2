import "reflect-metadata";
import type { EngineOptions } from "@heddle/contracts/engine";
import type { NodeFlags } from "@heddle/node-agent/node-flags";
import type { WorkerOffer } from "@heddle/node-agent/offer-flags";
import type { RunningNode } from "@heddle/node-agent/run-node";
import { nodeModule, startNode } from "@heddle/node-agent/start-node";
import type { Log } from "@heddle/observability/logger";
import type { EnginePorts } from "./inference/engine-ports.ts";
import { workerModule } from "./worker.module.ts";
import { WorkerState } from "./worker-state.ts";

export interface WorkerOptions extends NodeFlags, WorkerOffer {
  readonly version: string;
  /** Defaults of engine options that a deployment leaves open. */
  readonly engineDefaults: EngineOptions;
}

/** Starts a worker: serves models and tasks over gRPC, attached to every master. */
export function startWorker(
  options: WorkerOptions,
  ports: EnginePorts,
  log: Log,
): Promise<RunningNode> {
  const { version } = options;
  const node = nodeModule({ role: "worker", flags: options, version, log, machine: options });
  return startNode(workerModule(node, options, ports), WorkerState);
}
