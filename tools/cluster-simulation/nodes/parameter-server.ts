import { mkdirSync, rmSync } from "node:fs";
import { createLogger } from "@heddle/observability/logger";
import { startParameterServer } from "../../../apps/parameter-server/dist/parameter-server.js";
import { CLUSTER_TOKEN } from "../master.ts";
import type { ClusterWorld } from "../world.ts";
import { NodeInSimulation, type NodeMachine } from "./node-in-simulation.ts";

/** The same after each start, as a service of Kubernetes has it. */
const PORT = 9_100;

/** A parameter server on its machine: the real one, whose shards' threads are events. */
export class ServerInSimulation extends NodeInSimulation {
  /** Its checkpoints are gone. */
  hasLostDisk = false;

  constructor(world: ClusterWorld, machine: NodeMachine, masters: readonly string[]) {
    super(world, machine, () => run(machine, masters));
  }

  /** It starts again on an empty disk, as another node. */
  loseDisk(): void {
    const { directory } = this.machine;
    this.kill();
    this.hasLostDisk = true;
    rmSync(directory, { recursive: true });
    mkdirSync(directory);
  }
}

function run({ name, directory }: NodeMachine, masters: readonly string[]): Promise<unknown> {
  const log = createLogger({ service: "parameter-server", level: "silent" });
  const flags = {
    dataDirectory: directory,
    name,
    grpcHost: name,
    grpcPort: PORT,
    advertise: undefined,
    masters,
    clusterToken: CLUSTER_TOKEN,
  };
  return startParameterServer(flags, "simulated", log);
}
