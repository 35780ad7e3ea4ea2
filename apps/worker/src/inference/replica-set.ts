import { isDeepStrictEqual } from "node:util";
import { AppError } from "@heddle/base/errors";
import type {
  DeploymentSpec,
  EngineFailure,
  EngineOptions,
  EngineRequest,
  ReplicaStatus,
  WeightsSpec,
} from "@heddle/contracts/engine";
import type { Log } from "@heddle/observability/logger";
import type { EnginePorts } from "./engine-ports.ts";
import {
  type EventListener,
  type FailedTries,
  type InferenceCallOptions,
  Replica,
  type ReplicaCall,
} from "./replica.ts";

/** The most deployments of one worker. */
const MAX_REPLICAS = 64;
/** How long a stage that is unloaded waits for its driver, which may move its cache. */
const DRIVEN_GRACE_MS = 60_000;

/** The deployments of this node, one engine each. */
export class ReplicaSet {
  readonly #ports: EnginePorts;
  readonly #defaults: EngineOptions;
  readonly #log: Log;
  readonly #onChange: () => void;
  readonly #replicas = new Map<string, Replica>();

  /** `defaults` fill the engine options that a deployment leaves open. */
  constructor(ports: EnginePorts, defaults: EngineOptions, log: Log, onChange: () => void) {
    this.#ports = ports;
    this.#defaults = defaults;
    this.#log = log;
    this.#onChange = onChange;
  }

  /** The statuses for `master`. */
  statuses(master?: string): ReplicaStatus[] {
    return [...this.#replicas.values()].map((replica) => replica.status(master));
  }

  /** Requests that have not ended, over all deployments. */
  get openRequests(): number {
    let total = 0;
    for (const replica of this.#replicas.values()) total += replica.openRequests;
    return total;
  }

  /**
   * Starts a deployment. A running one is left alone; a failed one is retried, unless it would fail
   * again; one whose specification changed is replaced. `holders` are the addresses of workers that
   * may have parts of its weights.
   */
  async load(asked: DeploymentSpec, holders: readonly string[] = []): Promise<void> {
    // The defaults are of libllama.
    const defaults = asked.engine === "llama" ? this.#defaults : {};
    const spec = { ...asked, options: { ...defaults, ...asked.options } };
    const current = this.#replicas.get(spec.key);
    if (current) {
      const runs = current.phase !== "failed" && current.phase !== "unloading";
      const isDone = runs || current.failsAgain;
      if (isDone && isDeepStrictEqual(current.spec, spec)) return;
      if (runs && current.moveStages(spec)) return;
      await this.unload(spec.key);
    }
    // Another load of the same key may have finished during the wait.
    if (this.#replicas.has(spec.key)) return;
    if (this.#replicas.size >= MAX_REPLICAS) {
      const message = `this worker has reached its limit of ${MAX_REPLICAS} deployments: unload one first`;
      throw new AppError("overloaded", message);
    }
    const isSame = current !== undefined && isDeepStrictEqual(current.spec, spec);
    this.#begin(spec, isSame ? current.failedTries : undefined, holders);
  }

  /**
   * An operator had these weights pulled: failed loads of them are retried at once, also abandoned
   * ones.
   */
  async retry(weights: WeightsSpec): Promise<void> {
    const failed = [...this.#replicas.values()].filter(
      ({ phase, spec }) => phase === "failed" && isDeepStrictEqual(spec.weights, weights),
    );
    for (const { spec } of failed) {
      await this.unload(spec.key);
      if (!this.#replicas.has(spec.key)) this.#begin(spec);
    }
  }

  #begin(spec: DeploymentSpec, before?: FailedTries, holders: readonly string[] = []): void {
    const { pullWeights } = this.#ports;
    const ports: EnginePorts = {
      ...this.#ports,
      pullWeights: (weights, pull) => pullWeights(weights, { ...pull, holders }),
    };
    const replica = new Replica(spec, ports, this.#log, this.#onChange, before);
    this.#replicas.set(spec.key, replica);
    this.#onChange();
  }

  /** Unloads it once its open requests have ended, or the grace period has passed. */
  retire(key: string, graceMs: number): void {
    const replica = this.#replicas.get(key);
    if (!replica || replica.isRetiring) return;
    void replica.retire(graceMs).then(async () => {
      if (this.#replicas.get(key) === replica) await this.unload(key);
    });
  }

  /** As a master asks for it: a stage goes when its driver has left it, which may move its cache first. */
  async release(key: string, graceMs: number): Promise<void> {
    const drivenMs = this.#replicas.get(key)?.isDriven ? DRIVEN_GRACE_MS : 0;
    const ms = Math.max(graceMs, drivenMs);
    if (ms > 0) this.retire(key, ms);
    else await this.unload(key);
  }

  /** Resolves when the engine is gone; unknown keys are a no-op. */
  async unload(key: string): Promise<void> {
    const replica = this.#replicas.get(key);
    if (!replica) return;
    await replica.close();
    if (this.#replicas.get(key) === replica) this.#replicas.delete(key);
    this.#onChange();
  }

  /** The stage that another worker drives; throws an AppError where there is none. */
  stage(key: string): Replica["stage"] {
    const replica = this.#replicas.get(key);
    if (replica) return replica.stage;
    throw new AppError("model_loading", `this worker does not run the stage ${key} yet`);
  }

  submit(
    key: string,
    request: EngineRequest,
    options: InferenceCallOptions,
    listener: EventListener,
  ): ReplicaCall | { readonly refused: EngineFailure } {
    const replica = this.#replicas.get(key);
    if (replica) return replica.submit(request, options, listener);
    const message = `this worker does not run the deployment ${key}`;
    return { refused: { code: "model_not_found", message } };
  }

  async close(): Promise<void> {
    await Promise.all([...this.#replicas.keys()].map((key) => this.unload(key)));
  }
}
