import type { PlaceOffer } from "@heddle/node-agent/machine";
import type { PluginExecutor } from "@heddle/plugin-kit/points/executors";

/** A batch system that runs a worker's tasks as its jobs: Slurm, or what a plugin adds. */
export interface BatchPlace {
  /** The name in messages to users. */
  readonly title: string;
  /** The folder of the worker's files for its jobs, in the data directory. */
  readonly folder: string;
  /** Undefined while it cannot say what it has. */
  readonly offer: PlaceOffer | undefined;
  /** Why it cannot; empty where it has. */
  readonly fault?: string;
  readonly system: BatchSystem;
}

/** What the jobs of a batch system need of it, once its offer is known. */
export type BatchSystem = Pick<PluginExecutor, "submit" | "list" | "cancel">;

interface Amounts {
  readonly cpus: number;
  readonly memoryBytes: number;
  /** The model of each device. */
  readonly gpus: readonly string[];
}

export const MAX_BATCH_DEVICES = 1_024;

/** The offer of a system with these amounts; its devices have no measures. */
export function placeOffer(id: string, { cpus, memoryBytes, gpus }: Amounts): PlaceOffer {
  const unmeasured = { memoryBytes: 0, memoryUsedBytes: 0, utilizationPercent: 0 };
  const more = { temperatureCelsius: 0, powerWatts: 0, simulated: false, fault: "" };
  return {
    id,
    gpus: gpus.slice(0, MAX_BATCH_DEVICES).map((name, index) => {
      return { index, uuid: `${id}-${index}`, name, ...unmeasured, ...more };
    }),
    cpuMilli: Math.floor(cpus * 1_000),
    memoryBytes,
  };
}
