import type { PlaceOffer } from "@heddle/node-agent/machine";
import type { WorkerOptions } from "../config/worker-options.ts";
import { PodPlace } from "./pods/pod-place.ts";
import { SlurmPlace } from "./slurm/slurm-place.ts";

/** Where a worker's tasks run in place of its own machine; at most one of them. */
export class OuterPlaces {
  readonly pods: PodPlace | undefined;
  readonly slurm: SlurmPlace | undefined;

  private constructor(pods: PodPlace | undefined, slurm: SlurmPlace | undefined) {
    this.pods = pods;
    this.slurm = slurm;
  }

  /** Rejects where an outer system does not answer. */
  static async find({ pods, slurm }: WorkerOptions): Promise<OuterPlaces> {
    return new OuterPlaces(
      pods && (await PodPlace.find(pods)),
      slurm && (await SlurmPlace.find(slurm)),
    );
  }

  /** What tasks get there; undefined where they run on this machine. */
  get offer(): PlaceOffer | undefined {
    return this.pods?.offer ?? this.slurm?.offer;
  }
}
