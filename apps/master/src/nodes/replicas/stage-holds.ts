import type { Clock } from "@heddle/base/clock";
import { canTake, type StageHold } from "./mended-replica.ts";
import { CUT_MS, StageCuts } from "./stage-cuts.ts";
import {
  keyOfPart,
  lastNode,
  type StageCandidate,
  type StagedReplica,
  type StagePart,
  stageBuildOf,
} from "./staged-replica.ts";
import type { WakeUp } from "./wake-up.ts";

/** A worker that is absent or drained for so long has lost its stage. */
const ABSENT_MS = 1_500;
/** Where no other worker can take a lost stage, its own or its GPU may come back: a restart takes seconds. */
const RETURNS_MS = 20_000;
/** A stage that has failed for this long goes to a worker that has none, if there is one with the memory. */
const FAILING_MS = 10_000;

interface StageWorkersNow {
  /** Workers that have no stage, with the library that most of the replica's have. */
  readonly spares: readonly StageCandidate[];
  /** All workers. */
  readonly workers: ReadonlyMap<string, StageCandidate>;
  /** How it is with the GPUs that a worker's stage needs, if any: some have failed, or are others'. */
  readonly gpusOf: (node: string) => "present" | "failed" | "taken";
}

/** How workers have the stages of replicas, as time passes. */
export class StageHolds {
  readonly cuts: StageCuts;
  readonly #clock: Clock;
  readonly #wakeUp: WakeUp;
  /** Keyed by node: since when it is absent. */
  readonly #absentSinceMs = new Map<string, number>();
  /** Keyed by stage, then node: since when it has not been ready after a failure. */
  readonly #failingSinceMs = new Map<string, number>();
  /** In the same way: since when its GPU has failed. */
  readonly #lacksGpuSinceMs = new Map<string, number>();

  constructor(clock: Clock, wakeUp: WakeUp) {
    this.cuts = new StageCuts(clock);
    this.#clock = clock;
    this.#wakeUp = wakeUp;
  }

  clear(): void {
    this.cuts.clear();
    this.#absentSinceMs.clear();
    this.#failingSinceMs.clear();
    this.#lacksGpuSinceMs.clear();
  }

  /** Forgets what is of other replicas than these. */
  keep(replicas: readonly StagedReplica[]): void {
    const places = replicas.flatMap((replica) =>
      replica.parts.map((part, index) => placeOf(replica, part, index)),
    );
    const nodes = replicas.flatMap(({ parts }) => parts.map(({ node }) => node));
    for (const map of [this.#failingSinceMs, this.#lacksGpuSinceMs]) keepOnly(map, new Set(places));
    keepOnly(this.#absentSinceMs, new Set(nodes));
  }

  /** Says how each of the replica's stages is held, in order. */
  of(replica: StagedReplica, now: StageWorkersNow): StageHold[] {
    const { parts } = replica;
    const holds = parts.map(({ node }) => this.#presence(now.workers.get(node), node));
    const failing = parts.filter((part, index) => this.#fails(replica, part, index, now));
    const odd = this.#odd(replica, now);
    const moving = new Set([...failing, ...odd, ...this.#parted(replica, holds, now)]);
    return holds.map((hold, index) => {
      if (hold !== "firm") return hold;
      const part = parts[index]!;
      return moving.has(part) ? "lost" : this.#onGpus(placeOf(replica, part, index), part, now);
    });
  }

  /** A failed GPU may be found well. One that others have does not come back soon. */
  #onGpus(at: string, { node }: StagePart, { gpusOf }: StageWorkersNow): StageHold {
    const gpus = gpusOf(node);
    if (gpus !== "failed") {
      this.#lacksGpuSinceMs.delete(at);
      return gpus === "taken" ? "gone" : "firm";
    }
    const leftMs = RETURNS_MS - this.#sinceMs(this.#lacksGpuSinceMs, at);
    if (leftMs > 0) this.#wakeUp.after(leftMs);
    return leftMs > 0 ? "lost" : "gone";
  }

  /** A worker that is absent may come back, and for one that is drained another may just attach. */
  #presence(candidate: StageCandidate | undefined, node: string): StageHold {
    if (candidate && candidate.leaving !== "drained") {
      this.#absentSinceMs.delete(node);
      return candidate.leaving ? "leaving" : "firm";
    }
    const absentMs = this.#sinceMs(this.#absentSinceMs, node);
    if (absentMs >= ABSENT_MS + RETURNS_MS) return "gone";
    const isLost = absentMs >= ABSENT_MS;
    this.#wakeUp.after((isLost ? ABSENT_MS + RETURNS_MS : ABSENT_MS) - absentMs);
    if (isLost) return candidate ? "gone" : "lost";
    return candidate ? "leaving" : "firm";
  }

  /** Whether a worker has failed to load its stage for long, as where its disk is full. */
  #fails(replica: StagedReplica, part: StagePart, index: number, now: StageWorkersNow): boolean {
    const phase = now.workers.get(part.node)?.node.replica(keyOfPart(replica, index))?.phase;
    const at = placeOf(replica, part, index);
    if (phase === "ready") this.#failingSinceMs.delete(at);
    if (phase !== "failed") return false;
    const leftMs = FAILING_MS - this.#sinceMs(this.#failingSinceMs, at);
    if (leftMs > 0) this.#wakeUp.after(leftMs);
    return leftMs <= 0 && this.#canMove(replica, part, now);
  }

  /** Stages on workers with another library than most of them have, where others can take these. */
  #odd(replica: StagedReplica, now: StageWorkersNow): readonly StagePart[] {
    const [spare] = now.spares;
    return replica.parts.filter((part) => {
      const held = now.workers.get(part.node);
      const isOdd = held && spare && stageBuildOf(held) !== stageBuildOf(spare);
      return isOdd && this.#canMove(replica, part, now);
    });
  }

  /**
   * Stages that move since the worker of the last one does not reach theirs. The last one moves if
   * its worker is cut off from more others; else the unreached ones do, which ends no calls.
   */
  #parted(
    replica: StagedReplica,
    holds: readonly StageHold[],
    now: StageWorkersNow,
  ): readonly StagePart[] {
    const driver = lastNode(replica);
    const { unreachable = [] } = now.workers.get(driver)?.node.replica(replica.of.key) ?? {};
    // One that loads its stage may just have come back.
    const isReady = ({ node }: StagePart, index: number) =>
      now.workers.get(node)?.node.replica(keyOfPart(replica, index))?.phase === "ready";
    const isFar = ({ node }: StagePart) =>
      unreachable.some((each) => each.node === node && each.forMs >= CUT_MS);
    const far = replica.parts.filter(
      (part, index) => holds[index] === "firm" && isFar(part) && isReady(part, index),
    );
    if (far.length === 0) return [];
    for (const { node } of far) this.cuts.add(driver, node);
    const movable = far.filter((part) => this.#canMove(replica, part, now));
    const own = this.cuts.countOf(driver);
    const isMoreCut = far.every(({ node }) => own > this.cuts.countOf(node));
    if (movable.length > 0 && !isMoreCut) return movable;
    const last = replica.parts.at(-1)!;
    return this.#canMove(replica, last, now) ? [last] : movable;
  }

  #canMove(replica: StagedReplica, part: StagePart, { spares }: StageWorkersNow): boolean {
    return spares.some((spare) => canTake(spare, replica, part, this.cuts));
  }

  /** For how long the entry is there, from now on. */
  #sinceMs(map: Map<string, number>, key: string): number {
    const nowMs = this.#clock.monotonicMs();
    const sinceMs = map.get(key) ?? nowMs;
    map.set(key, sinceMs);
    return nowMs - sinceMs;
  }
}

function placeOf(replica: StagedReplica, { node }: StagePart, index: number): string {
  return `${keyOfPart(replica, index)}@${node}`;
}

function keepOnly(map: Map<string, unknown>, keys: ReadonlySet<string>): void {
  for (const key of map.keys()) if (!keys.has(key)) map.delete(key);
}
