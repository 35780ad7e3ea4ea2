import type { EventQueue } from "@heddle/simulation/event-queue";
import type { Checker } from "./checker.ts";
import type { LeaseOracle } from "./lease-oracle.ts";
import type { Network } from "./network.ts";
import type { TaskMachine } from "./nodes/running-task.ts";
import type { SimulatedProcess } from "./simulated-process.ts";
import type { ShardOracle } from "./training/shard-oracle.ts";

/** What the stand-ins of a run share. */
export interface ClusterWorld {
  readonly seed: number;
  /** Holds the files of all machines. */
  readonly directory: string;
  readonly queue: EventQueue;
  readonly network: Network;
  readonly checker: Checker;
  readonly leases: LeaseOracle;
  readonly shards: ShardOracle;
  readonly machines: Map<string, TaskMachine>;
  readonly trace: (text: () => string) => void;
}

const worlds = new WeakMap<EventQueue, ClusterWorld>();

export function enterWorld(world: ClusterWorld): void {
  worlds.set(world.queue, world);
}

export function worldOf({ queue }: SimulatedProcess): ClusterWorld {
  const world = worlds.get(queue);
  if (!world) throw new Error("a process outside of every simulation");
  return world;
}
