import type { ClusterFault } from "./cluster-faults.ts";

/** Restores what was replaced. */
export type Uproot = () => void;

export interface PlantedBug {
  /** Under which it shows. */
  readonly faults: readonly ClusterFault[];
  /** Whether it shows only where jobs train. */
  readonly trains: boolean;
  readonly plant: () => Uproot;
}

export function bug(
  faults: readonly ClusterFault[],
  plant: () => Uproot,
  trains = false,
): PlantedBug {
  return { faults, plant, trains };
}

/** Replaces a method until the result is called. */
export function replaced<T extends object, K extends keyof T>(
  prototype: T,
  name: K,
  change: (original: T[K]) => T[K],
): Uproot {
  const original = prototype[name];
  prototype[name] = change(original);
  return () => {
    prototype[name] = original;
  };
}
