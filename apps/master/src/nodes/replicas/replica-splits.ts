import type { Clock } from "@heddle/base/clock";
import type { Random } from "@heddle/base/random";
import type { LlamaDeployment } from "@heddle/contracts/engine";
import type { DeploymentRecord } from "@heddle/control/state";
import { ModelSizes } from "./model-sizes.ts";
import { holdsWhole, type ReplicaSplit, splitReplicas, wholeReason } from "./replica-split.ts";
import type { StageCandidate, StagedReplica } from "./staged-replica.ts";
import type { WakeUp } from "./wake-up.ts";

/** Workers that attach say within this time what they offer. */
const KNOWN_MS = 3_000;

interface ReplicaSplitsOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly onChange: () => void;
}

/** How many replicas of deployments workers divide, as soon as what decides it is known. */
export class ReplicaSplits {
  readonly #clock: Clock;
  readonly #wakeUp: WakeUp;
  readonly #sizes: ModelSizes;
  /** Keyed by deployment: since when no worker's memory is known. */
  readonly #unknownSinceMs = new Map<string, number>();
  readonly #undivided = new Map<string, string>();

  constructor(options: ReplicaSplitsOptions, wakeUp: WakeUp) {
    this.#clock = options.clock;
    this.#wakeUp = wakeUp;
    this.#sizes = new ModelSizes(options);
  }

  clear(): void {
    this.#sizes.clear();
    this.#unknownSinceMs.clear();
    this.#undivided.clear();
  }

  /** Forgets other deployments than these. */
  keep(deployments: { has(key: string): boolean }): void {
    this.#sizes.keep(deployments);
    for (const map of [this.#unknownSinceMs, this.#undivided]) {
      for (const key of map.keys()) if (!deployments.has(key)) map.delete(key);
    }
  }

  /** Keyed by deployment: why the placement `auto` does not divide it. */
  get undivided(): ReadonlyMap<string, string> {
    return this.#undivided;
  }

  /** What whole models take in one worker. */
  get sizes(): Pick<ModelSizes, "known" | "reading"> {
    return this.#sizes;
  }

  /**
   * Undefined for a short time where the memory of no worker is known, or of the model, which decide.
   * Only the leader has workers asked for what the model takes.
   */
  of(
    record: DeploymentRecord & { readonly spec: LlamaDeployment },
    candidates: readonly StageCandidate[],
    replicas: readonly StagedReplica[],
    isLeader: boolean,
  ): ReplicaSplit | undefined {
    const { spec } = record;
    const isOpen = (spec.placement?.mode ?? "auto") === "auto";
    const size = isOpen && isLeader ? this.#sizes.of(spec, candidates) : {};
    const isPlaced =
      replicas.length > 0 || candidates.some(({ node }) => holdsWhole(node, spec.key));
    if (isPlaced) this.#unknownSinceMs.delete(spec.key);
    const isKnown = isPlaced || (this.#isMemoryKnown(spec.key, candidates) && size !== undefined);
    const split = isKnown ? splitReplicas(record, candidates, replicas, size) : undefined;
    const reason = split && isOpen ? wholeReason(spec, split, size, candidates) : undefined;
    if (reason === undefined) this.#undivided.delete(spec.key);
    else this.#undivided.set(spec.key, reason);
    return split;
  }

  /** Or none has said it for long. */
  #isMemoryKnown(key: string, candidates: readonly StageCandidate[]): boolean {
    const isKnown = candidates.some(({ memoryBytes }) => memoryBytes(key) !== undefined);
    if (isKnown || candidates.length === 0) {
      this.#unknownSinceMs.delete(key);
      return true;
    }
    const nowMs = this.#clock.monotonicMs();
    const sinceMs = this.#unknownSinceMs.get(key) ?? nowMs;
    this.#unknownSinceMs.set(key, sinceMs);
    const leftMs = sinceMs + KNOWN_MS - nowMs;
    if (leftMs > 0) this.#wakeUp.after(leftMs);
    return leftMs <= 0;
  }
}
