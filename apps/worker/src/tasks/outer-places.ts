import { AppError } from "@heddle/base/errors";
import type { PlaceOffer } from "@heddle/node-agent/machine";
import { isPluginExecutor } from "@heddle/node-agent/offer-flags";
import type { Log } from "@heddle/observability/logger";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { WorkerOptions } from "../config/worker-options.ts";
import { type BatchPlace, placeOffer } from "./batch/batch-place.ts";
import { pluginPlace } from "./batch/plugin-place.ts";
import { PodPlace } from "./pods/pod-place.ts";
import { slurmPlace } from "./slurm/slurm-place.ts";

interface Places {
  readonly pods?: PodPlace | undefined;
  readonly batch?: BatchPlace | undefined;
  /** Tasks run nowhere: what was to run them cannot be used. */
  readonly isClosed?: boolean;
}

/** Where a worker's tasks run in place of its own machine; at most one of them. */
export class OuterPlaces {
  readonly pods: PodPlace | undefined;
  readonly batch: BatchPlace | undefined;
  readonly isClosed: boolean;

  private constructor({ pods, batch, isClosed = false }: Places) {
    this.pods = pods;
    this.batch = batch;
    this.isClosed = isClosed;
  }

  /** Rejects where Kubernetes or Slurm does not answer. A plugin that fails leaves the rest. */
  static async find(
    { pods, slurm, executor }: WorkerOptions,
    plugins: PluginSet,
    log: Log,
  ): Promise<OuterPlaces> {
    if (pods) return new OuterPlaces({ pods: await PodPlace.find(pods) });
    if (slurm) return new OuterPlaces({ batch: await slurmPlace(slurm) });
    if (executor === undefined || !isPluginExecutor(executor)) return new OuterPlaces({});
    try {
      return new OuterPlaces({ batch: await pluginPlace(executor, plugins) });
    } catch (error) {
      if (error instanceof AppError && error.code === "invalid_value") throw error;
      const { message: reason } = error as Error;
      log.error(
        { executor, reason },
        "no task runs on this worker: mend its plugin, and restart it",
      );
      return new OuterPlaces({ isClosed: true });
    }
  }

  /** What tasks get there; undefined where they run on this machine. */
  get offer(): PlaceOffer | undefined {
    if (this.isClosed) return placeOffer("none", { cpus: 0, memoryBytes: 0, gpus: [] });
    return this.pods?.offer ?? this.batch?.offer;
  }
}
