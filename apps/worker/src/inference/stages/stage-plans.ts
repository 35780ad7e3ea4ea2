import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import type { EngineOptions, WeightsSpec } from "@heddle/contracts/engine";
import type { ModelPlan } from "@heddle/engines/shards/plan-model";
import type { ShardWorker } from "@heddle/engines/shards/plan-stages";
import type { EnginePorts } from "../engine-ports.ts";

/** A plan is refused where the weights are not there by then; they are pulled on. */
const PULL_WAIT_MS = 3_000;
/** Models whose weights are pulled for plans at a time. */
const MAX_PULLS = 4;

/** Plans how models are divided between workers; for that it needs their weights. */
export class StagePlans {
  readonly #ports: EnginePorts;
  readonly #closing = new AbortController();
  /** By the weights. */
  readonly #pulls = new Map<string, Promise<string>>();

  constructor(ports: EnginePorts) {
    this.#ports = ports;
  }

  /** Rejects with `model_loading` while the weights are pulled. */
  async plan(
    weights: WeightsSpec,
    options: EngineOptions,
    workers: readonly ShardWorker[],
    maxStages: number,
  ): Promise<ModelPlan> {
    const { planStages } = this.#ports;
    if (!planStages) throw new AppError("unavailable", "this worker's engines divide no model");
    const late = delay(PULL_WAIT_MS, undefined, { ref: false });
    const path = await Promise.race([this.#pulled(weights), late]);
    if (path !== undefined) return planStages(path, options, workers, maxStages);
    throw new AppError("model_loading", `${weights.key} is pulled, to divide it between workers`);
  }

  close(): void {
    this.#closing.abort();
  }

  #pulled(weights: WeightsSpec): Promise<string> {
    const key = JSON.stringify(weights);
    const known = this.#pulls.get(key);
    if (known) return known;
    if (this.#pulls.size >= MAX_PULLS) {
      throw new AppError("overloaded", `${MAX_PULLS} models are pulled for plans already`);
    }
    const pull = this.#ports
      .pullWeights(weights, { signal: this.#closing.signal, onProgress: () => undefined })
      .finally(() => this.#pulls.delete(key));
    pull.catch(() => undefined);
    this.#pulls.set(key, pull);
    return pull;
  }
}
