import { simulatedGpus } from "@heddle/node-agent/simulated-gpus";
import { createLogger } from "@heddle/observability/logger";
import { startWorker } from "../../../apps/worker/dist/worker.js";
import { scriptedPorts } from "../../../apps/worker/test/scripted-ports.ts";
import { CLUSTER_TOKEN } from "../master.ts";
import type { ClusterWorld } from "../world.ts";
import { NodeInSimulation } from "./node-in-simulation.ts";
import type { WorkerMachine } from "./worker-machine.ts";

/** The GPUs of each machine. */
const GPUS = 2;

/** A worker's process on its machine: the real worker, with programs that are events. */
export class WorkerInSimulation extends NodeInSimulation<WorkerMachine> {
  constructor(world: ClusterWorld, machine: WorkerMachine, masters: readonly string[]) {
    super(world, machine, () => run(machine, masters));
  }
}

function run({ name, directory }: WorkerMachine, masters: readonly string[]): Promise<unknown> {
  const log = createLogger({ service: "worker", level: "silent" });
  const gpus = simulatedGpus(`${GPUS}xH100-80GB`);
  const options = {
    dataDirectory: directory,
    name,
    grpcHost: name,
    grpcPort: 0,
    advertise: undefined,
    masters,
    clusterToken: CLUSTER_TOKEN,
    version: "simulated",
    engineDefaults: {},
    labels: {},
    taints: [],
    rack: "",
    fabric: "",
    simulatedGpus: gpus,
  };
  return startWorker(options as unknown as Parameters<typeof startWorker>[0], scriptedPorts, log);
}
