import { retry } from "@heddle/base/async/retry";
import type { AppError } from "@heddle/base/errors";
import type { PlaceOffer } from "@heddle/node-agent/machine";
import { isPluginExecutor } from "@heddle/node-agent/offer-flags";
import type { Log } from "@heddle/observability/logger";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { OnModuleDestroy } from "@nestjs/common";
import type { WorkerOptions } from "../config/worker-options.ts";
import { type BatchPlace, placeOffer } from "./batch/batch-place.ts";
import { PluginPlace } from "./batch/plugin-place.ts";
import { PodPlace } from "./pods/pod-place.ts";
import { slurmPlace } from "./slurm/slurm-place.ts";

/** Between two questions to a plugin for its offer. */
const ASK_AGAIN = { baseMs: 1_000, maxMs: 60_000 };

interface Places {
  readonly pods?: PodPlace | undefined;
  readonly batch?: BatchPlace | undefined;
}

/** Where a worker's tasks run in place of its own machine; at most one of them. */
export class OuterPlaces implements OnModuleDestroy {
  readonly pods: PodPlace | undefined;
  readonly batch: BatchPlace | undefined;
  readonly #closing = new AbortController();
  #onOpen: (() => void) | undefined;

  private constructor({ pods, batch }: Places) {
    this.pods = pods;
    this.batch = batch;
  }

  /** Rejects where Kubernetes or Slurm does not answer. A plugin that fails is asked again. */
  static async find(
    { pods, slurm, executor }: WorkerOptions,
    plugins: PluginSet,
    log: Log,
  ): Promise<OuterPlaces> {
    if (pods) return new OuterPlaces({ pods: await PodPlace.find(pods) });
    if (slurm) return new OuterPlaces({ batch: await slurmPlace(slurm) });
    if (executor === undefined || !isPluginExecutor(executor)) return new OuterPlaces({});
    const place = new PluginPlace(executor, plugins);
    const places = new OuterPlaces({ batch: place });
    await places.#ask(place, log);
    return places;
  }

  /** What tasks get there; undefined where they run on this machine. */
  get offer(): PlaceOffer | undefined {
    const { pods, batch } = this;
    if (batch) return batch.offer ?? placeOffer("none", { cpus: 0, memoryBytes: 0, gpus: [] });
    return pods?.offer;
  }

  /** Why tasks run nowhere now; empty where they can. */
  get fault(): string {
    return this.batch?.fault ?? "";
  }

  /** Called once, when what has failed at the start works. */
  onOpen(listener: () => void): void {
    this.#onOpen = listener;
  }

  onModuleDestroy(): void {
    this.#closing.abort();
  }

  /** Resolves after the first answer or failure. Rejects where no plugin can have the executor. */
  async #ask(place: PluginPlace, log: Log): Promise<void> {
    const { title: executor } = place;
    const { promise: failed, resolve } = Promise.withResolvers<void>();
    let logged = "";
    const onRetry = () => {
      const { fault: reason } = place;
      if (reason !== logged)
        log.error({ executor, reason }, "no task runs on this worker until its executor works");
      logged = reason;
      resolve();
    };
    const isPassing = (error: unknown) => (error as AppError).code !== "invalid_value";
    const options = { backoff: ASK_AGAIN, signal: this.#closing.signal, isPassing, onRetry };
    const asked = retry(() => place.ask(), options);
    await Promise.race([asked, failed]);
    asked.then(
      () => this.#onOpen?.(),
      // The worker ends.
      () => undefined,
    );
  }
}
