import "reflect-metadata";
import type { RunningNode } from "@heddle/node-agent/run-node";
import { nodeModule, startNode } from "@heddle/node-agent/start-node";
import type { Log } from "@heddle/observability/logger";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { WorkerOptions } from "./config/worker-options.ts";
import type { EnginePorts } from "./inference/engine-ports.ts";
import { OuterPlaces } from "./tasks/outer-places.ts";
import { workerModule } from "./worker.module.ts";
import { WorkerState } from "./worker-state.ts";

/** Starts a worker: serves models and tasks over gRPC, attached to every master. */
export async function startWorker(
  options: WorkerOptions,
  ports: EnginePorts,
  log: Log,
  plugins = PluginSet.EMPTY,
): Promise<RunningNode> {
  const { version } = options;
  const places = await OuterPlaces.find(options, plugins, log);
  const machine = { ...options, place: places.offer && places };
  const node = nodeModule({ role: "worker", flags: options, version, log, machine });
  return startNode(workerModule(node, options, ports, places, plugins), WorkerState);
}
