import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { AppError } from "@heddle/base/errors";
import type { EngineOptions, WeightsSpec } from "@heddle/contracts/engine";
import type { ModelPlan } from "@heddle/engines/shards/plan-model";
import type { ShardWorker } from "@heddle/engines/shards/plan-stages";
import type { IndexedModel } from "@heddle/engines/shards/weights/stage-weights";
import type { EnginePorts, PullState, StagePorts } from "../engine-ports.ts";

/** A plan is refused where the weights have not been read by then; they are read on. A header is not. */
const READ_WAIT_MS = 3_000;
/** Models whose weights are read for plans at a time. */
const MAX_READS = 4;

/** The plan, and the digest that names the model's index. */
export type IndexedPlan = ModelPlan & Pick<IndexedModel, "index">;

interface Read {
  readonly model: Promise<IndexedModel>;
  progress: PullState;
}

/** Plans how models are divided between workers; for that it reads their weights once. */
export class StagePlans {
  readonly #ports: EnginePorts;
  readonly #closing = new AbortController();
  /** Keyed by the weights. */
  readonly #reads = new Map<string, Read>();

  constructor(ports: EnginePorts) {
    this.#ports = ports;
  }

  /** Rejects with `model_loading` while the weights are read. */
  async plan(
    weights: WeightsSpec,
    options: EngineOptions,
    workers: readonly ShardWorker[],
    maxStages: number,
  ): Promise<IndexedPlan> {
    const stages = this.#stages();
    const model = await this.#indexed(weights, stages);
    const plan = await stages.plan(model, options, workers, maxStages);
    return { ...plan, index: model.index };
  }

  /**
   * Memory that a worker needs for the whole model. Rejects with `unprocessable` where it cannot be divided,
   * and with `model_loading` while the weights are read, as `readsWhole` allows.
   */
  async wholeBytes(
    weights: WeightsSpec,
    options: EngineOptions,
    readsWhole: boolean,
  ): Promise<number> {
    const stages = this.#stages();
    // After that its header lies in the cache.
    if (readsWhole) await this.#indexed(weights, stages);
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(READ_WAIT_MS)]);
    return await stages.wholeBytes(weights, options, { signal, onProgress: () => {} });
  }

  close(): void {
    this.#closing.abort();
  }

  #stages(): StagePorts {
    const { stages } = this.#ports;
    if (stages) return stages;
    throw new AppError("unavailable", "this worker's engines divide no model");
  }

  async #indexed(weights: WeightsSpec, stages: StagePorts): Promise<IndexedModel> {
    const read = this.#read(weights, stages);
    if (await resolvesWithin(read.model, READ_WAIT_MS)) return read.model;
    const { pulledBytes, totalBytes } = read.progress;
    const message = `${weights.key} is read to divide it between workers: ${pulledBytes} of ${totalBytes} bytes`;
    throw new AppError("model_loading", message);
  }

  #read(weights: WeightsSpec, stages: StagePorts): Read {
    const key = JSON.stringify(weights);
    const known = this.#reads.get(key);
    if (known) return known;
    if (this.#reads.size >= MAX_READS) {
      throw new AppError("overloaded", `${MAX_READS} models are read for plans already`);
    }
    const onProgress = (progress: PullState) => {
      read.progress = progress;
    };
    const model = stages
      .index(weights, { signal: this.#closing.signal, onProgress })
      .finally(() => this.#reads.delete(key));
    model.catch(() => undefined);
    const read: Read = { model, progress: { pulledBytes: 0, totalBytes: 0, source: "" } };
    this.#reads.set(key, read);
    return read;
  }
}
