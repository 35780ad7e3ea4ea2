import { isDeepStrictEqual } from "node:util";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import { placedStages, type StageCandidate, type StagedReplica } from "./staged-replica.ts";

/** Keyed by deployment or stage, then node: what the worker is to load. */
export type StagePlaces = ReadonlyMap<string, ReadonlyMap<string, DeploymentSpec>>;

/** What workers load of staged replicas: the same object for the same place, so that a change is visible. */
export class PlacedSpecs {
  /** Keyed by stage, then node. */
  readonly #specs = new Map<string, DeploymentSpec>();

  clear(): void {
    this.#specs.clear();
  }

  /** Adds the stages of the replica that are kept, by their key and node. */
  place(
    places: Map<string, Map<string, DeploymentSpec>>,
    replica: StagedReplica,
    workers: ReadonlyMap<string, StageCandidate>,
    isKept: (key: string, node: string) => boolean,
  ): void {
    // A worker that is disconnected for a moment has no address.
    const parts = [...replica.parts, ...(replica.before?.replica.parts ?? [])];
    const isGone = parts.some(({ node }) => !workers.has(node));
    for (const { key, node, spec } of placedStages(replica, workers)) {
      if (!isKept(key, node)) continue;
      const at = `${key}@${node}`;
      const known = this.#specs.get(at);
      const kept = known && (isGone || isDeepStrictEqual(known, spec)) ? known : spec;
      this.#specs.set(at, kept);
      places.set(key, (places.get(key) ?? new Map()).set(node, kept));
    }
  }

  /** Forgets what has no place any more. */
  keep(places: StagePlaces): void {
    for (const at of this.#specs.keys()) {
      const [key = "", node = ""] = at.split("@");
      if (!places.get(key)?.has(node)) this.#specs.delete(at);
    }
  }
}
