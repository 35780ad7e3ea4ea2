import { isDeepStrictEqual } from "node:util";
import { Backoff } from "@heddle/base/backoff";
import type { Clock } from "@heddle/base/clock";
import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { DeploymentSpec, LlamaDeployment } from "@heddle/contracts/engine";
import type { StagePlan__Output } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type { DeploymentRecord } from "@heddle/control/state";
import type { Log } from "@heddle/observability/logger";
import type { DivisionNote } from "./divisions.ts";
import { following, mended, type StageHold, succeeding } from "./mended-replica.ts";
import { ModelSizes, type WholeSize } from "./model-sizes.ts";
import {
  holdsWhole,
  type ReplicaSplit,
  splitReplicas,
  type WholeReplicas,
  wholeReason,
} from "./replica-split.ts";
import {
  canHaveStage,
  divisionOf,
  keyOfPart,
  lastNode,
  maxStagesOf,
  placedStages,
  reportedReplica,
  type StageCandidate,
  type StagedReplica,
} from "./staged-replica.ts";

const RETRY = { baseMs: 500, maxMs: 30_000 };
/** A worker that is away or drained for so long has lost its stage. */
const AWAY_MS = 1_500;
/** Where no other worker can take a lost stage, its own may come back: a restart takes seconds. */
const RETURNS_MS = 20_000;
/** A stage that has failed for this long goes to a worker that has none, if there is one with the memory. */
const FAILING_MS = 10_000;
/** A new leader takes up the replicas that workers report within this time. */
const ADOPTS_MS = 3_000;
/** Workers that attach say within this time what they offer. */
const KNOWN_MS = 3_000;
/** Of a worker that plans: the model is read, or does not fit. Others say the same. */
const NO_FAULT: ReadonlySet<ErrorCode> = new Set(["model_loading", "unprocessable"]);
/** Workers that a plan considers. */
const MAX_WORKERS = 16;

/** By key of a deployment or stage, then node: what the worker is to load. */
export type StagePlaces = ReadonlyMap<string, ReadonlyMap<string, DeploymentSpec>>;

/** Where the replicas of models that workers divide go. */
export interface StagedPlacement {
  readonly places: StagePlaces;
  /** By deployment: its whole replicas beside those. */
  readonly whole: ReadonlyMap<string, WholeReplicas>;
}

export interface StagedReplicasOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Called when the places may have changed. */
  readonly onChange: () => void;
}

/** What is known of one deployment's division. */
interface Division {
  replicas: StagedReplica[];
  /** A stage of these is gone, and no worker can take it: its own may, until they are planned again. */
  broken: StagedReplica[];
  readonly backoff: Backoff;
  notBeforeMs: number;
  isPlanning: boolean;
  /** Failures of workers to plan, by which the next one is chosen. */
  faults: number;
  /** No replica of an earlier leader is taken up any more. */
  isSettled: boolean;
  /** Why the latest plan failed. */
  failure: AppError | undefined;
}

/**
 * The replicas of models that workers divide. A worker plans a division, since it can read the
 * model; the leader keeps the plans in memory, and a new leader learns them from the workers that have
 * the last stages. A worker that leaves is replaced; where none has the memory the replica is planned again.
 */
export class StagedReplicas {
  readonly #options: StagedReplicasOptions;
  /** By deployment. */
  readonly #divisions = new Map<string, Division>();
  /** By node: since when it is away. */
  readonly #awaySinceMs = new Map<string, number>();
  /** By deployment: since when no worker's memory is known. */
  readonly #unknownSinceMs = new Map<string, number>();
  /** By key of a stage, then node: since when it has not been ready after a failure. */
  readonly #failingSinceMs = new Map<string, number>();
  #leaderSinceMs: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Number.POSITIVE_INFINITY;
  /** The same object for the same place, so that a change is visible. */
  readonly #specs = new Map<string, DeploymentSpec>();
  readonly #sizes: ModelSizes;
  /** By deployment: why the placement `auto` does not divide it. */
  readonly #undivided = new Map<string, string>();

  constructor(options: StagedReplicasOptions) {
    this.#options = options;
    this.#sizes = new ModelSizes(options);
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  /** Forgets all: another master leads. */
  clear(): void {
    this.#leaderSinceMs = undefined;
    this.#divisions.clear();
    this.#unknownSinceMs.clear();
    this.#failingSinceMs.clear();
    this.#specs.clear();
    this.#sizes.clear();
    this.#undivided.clear();
  }

  /** By deployment: why it is not divided. */
  notes(): ReadonlyMap<string, DivisionNote> {
    const notes = new Map<string, DivisionNote>();
    for (const [key, { failure }] of this.#divisions) {
      if (failure) notes.set(key, { misfit: failure.message });
    }
    for (const [key, undivided] of this.#undivided) {
      notes.set(key, { ...notes.get(key), undivided });
    }
    return notes;
  }

  /** Brings the replicas up to date; only the leader has new ones planned. */
  places(
    deployments: ReadonlyMap<string, DeploymentRecord>,
    candidates: readonly StageCandidate[],
    isLeader: boolean,
  ): StagedPlacement {
    const nowMs = this.#options.clock.monotonicMs();
    if (isLeader) this.#leaderSinceMs ??= nowMs;
    const adoptsMs = isLeader ? (this.#leaderSinceMs ?? 0) + ADOPTS_MS - nowMs : 0;
    const byId = new Map(candidates.map((each) => [each.node.id, each]));
    const places = new Map<string, Map<string, DeploymentSpec>>();
    const whole = new Map<string, WholeReplicas>();
    for (const [key, record] of deployments) {
      const { spec } = record;
      this.#undivided.delete(key);
      if (spec.engine !== "llama" || divisionOf(record) === "whole") {
        this.#divisions.delete(key);
        continue;
      }
      const division = this.#division(key);
      const adopts = adoptsMs > 0 && !division.isSettled;
      if (adopts) this.#adopt(division, spec, byId);
      const size = isLeader && isOpen(spec) ? this.#sizes.of(spec, candidates) : {};
      const split = this.#split(record, division, candidates, size);
      const reason = split && isOpen(spec) && wholeReason(spec, split, size, candidates);
      if (reason) this.#undivided.set(key, reason);
      // Until the workers' memory is known it is placed neither whole nor divided.
      if (!split) places.set(key, new Map());
      if (!split?.divided && !split?.whole) {
        this.#divisions.delete(key);
        continue;
      }
      if (split.whole) whole.set(key, split.whole);
      const free = new Map([...byId].filter(([id]) => !split.whole?.workers.has(id)));
      this.#mend(division, spec, byId, free);
      division.replicas.splice(split.divided);
      division.broken.splice(split.divided - division.replicas.length);
      if (division.replicas.length === split.divided) division.failure = undefined;
      if (isLeader && division.replicas.length < split.divided) {
        if (adopts) this.#again(adoptsMs);
        else this.#plan(division, spec, free);
      }
      places.set(key, new Map());
      for (const replica of allOf(division)) {
        const isBroken = division.broken.includes(replica);
        // A worker that leaves unloads it when its calls have ended.
        const isLeft = isBroken && byId.get(lastNode(replica))?.leaving !== undefined;
        this.#place(places, replica, byId, isLeft);
      }
    }
    for (const key of this.#divisions.keys())
      if (!deployments.has(key)) this.#divisions.delete(key);
    for (const key of this.#unknownSinceMs.keys())
      if (!deployments.has(key)) this.#unknownSinceMs.delete(key);
    for (const key of this.#undivided.keys())
      if (!deployments.has(key)) this.#undivided.delete(key);
    this.#sizes.keep(deployments);
    this.#forget(places);
    return { places, whole };
  }

  /** Undefined for a short time where the memory of no worker is known, or of the model, which decide. */
  #split(
    record: DeploymentRecord,
    division: Division,
    candidates: readonly StageCandidate[],
    size: WholeSize | undefined,
  ): ReplicaSplit | undefined {
    const { key } = record.spec;
    const replicas = allOf(division);
    const isPlaced = replicas.length > 0 || candidates.some(({ node }) => holdsWhole(node, key));
    const isKnown = candidates.some(({ memoryBytes }) => memoryBytes(key) !== undefined);
    if (isPlaced || isKnown || candidates.length === 0) {
      this.#unknownSinceMs.delete(key);
      if (!size && !isPlaced) return undefined;
      return splitReplicas(record, candidates, replicas, size);
    }
    const nowMs = this.#options.clock.monotonicMs();
    const sinceMs = this.#unknownSinceMs.get(key) ?? nowMs;
    this.#unknownSinceMs.set(key, sinceMs);
    const leftMs = sinceMs + KNOWN_MS - nowMs;
    if (leftMs > 0) this.#again(leftMs);
    return leftMs > 0 || !size ? undefined : splitReplicas(record, candidates, replicas, size);
  }

  #division(key: string): Division {
    let division = this.#divisions.get(key);
    if (!division) {
      const backoff = new Backoff(RETRY, this.#options.random);
      division = {
        replicas: [],
        broken: [],
        backoff,
        notBeforeMs: 0,
        isPlanning: false,
        faults: 0,
        isSettled: false,
        failure: undefined,
      };
      this.#divisions.set(key, division);
    }
    return division;
  }

  /** Takes up the replicas that an earlier leader has planned. */
  #adopt(
    division: Division,
    spec: LlamaDeployment,
    workers: ReadonlyMap<string, StageCandidate>,
  ): void {
    const known = division.replicas.flatMap((replica) => [replica, replica.before?.replica ?? []]);
    const drivers = new Set(known.flat().map(lastNode));
    const reported = [...workers].flatMap(([id, { node }]) => {
      const stage = drivers.has(id) ? undefined : node.replica(spec.key)?.stage;
      return stage && stage.peers.length > 0 ? [reportedReplica(spec, id, stage)] : [];
    });
    if (reported.length === 0) return;
    division.replicas = succeeding([...division.replicas, ...reported], workers);
  }

  /** Gives the stages of lost workers to free ones; a replica for which that cannot be done is planned again. */
  #mend(
    division: Division,
    spec: LlamaDeployment,
    candidates: ReadonlyMap<string, StageCandidate>,
    free: ReadonlyMap<string, StageCandidate>,
  ): void {
    const sound: StagedReplica[] = [];
    const broken: StagedReplica[] = [];
    for (const replica of allOf(division)) {
      if (!isDeepStrictEqual(replica.of, spec)) continue;
      const spares = unused(free, [...sound, ...allOf(division)]);
      const holds = replica.parts.map(({ node, memoryBytes }, index) => {
        const hold = this.#hold(candidates.get(node), node);
        if (hold !== "firm" || !this.#fails(candidates.get(node), keyOfPart(replica, index)))
          return hold;
        const canMove = spares.some((spare) => (spare.memoryBytes(spec.key) ?? 0) >= memoryBytes);
        return canMove ? "lost" : hold;
      });
      const next = mended(replica, { holds, spares, workers: candidates });
      if (next) sound.push(next);
      else if (serves(replica, candidates)) broken.push(replica);
    }
    // Their workers report them until they have unloaded them.
    if (sound.length < division.replicas.length) division.isSettled = true;
    division.replicas = sound;
    division.broken = broken;
  }

  /** A worker that is away may come back, and for one that is drained another may just attach. */
  #hold(candidate: StageCandidate | undefined, node: string): StageHold {
    if (candidate && candidate.leaving !== "drained") {
      this.#awaySinceMs.delete(node);
      return candidate.leaving ? "leaving" : "firm";
    }
    const nowMs = this.#options.clock.monotonicMs();
    const sinceMs = this.#awaySinceMs.get(node) ?? nowMs;
    this.#awaySinceMs.set(node, sinceMs);
    const awayMs = nowMs - sinceMs;
    if (awayMs >= AWAY_MS + RETURNS_MS) return "gone";
    const isLost = awayMs >= AWAY_MS;
    this.#again((isLost ? AWAY_MS + RETURNS_MS : AWAY_MS) - awayMs);
    if (isLost) return candidate ? "gone" : "lost";
    return candidate ? "leaving" : "firm";
  }

  /** Whether the worker has failed to load the stage for long, as where its disk is full. */
  #fails(candidate: StageCandidate | undefined, key: string): boolean {
    const phase = candidate?.node.replica(key)?.phase;
    const at = `${key}@${candidate?.node.id}`;
    const nowMs = this.#options.clock.monotonicMs();
    if (phase === "ready") this.#failingSinceMs.delete(at);
    if (phase !== "failed") return false;
    const sinceMs = this.#failingSinceMs.get(at) ?? nowMs;
    this.#failingSinceMs.set(at, sinceMs);
    const leftMs = sinceMs + FAILING_MS - nowMs;
    if (leftMs > 0) this.#again(leftMs);
    return leftMs <= 0;
  }

  /** The earliest of what is due. */
  #again(afterMs: number): void {
    const dueMs = this.#options.clock.monotonicMs() + afterMs;
    if (dueMs >= this.#dueMs) return;
    this.#dueMs = dueMs;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#dueMs = Number.POSITIVE_INFINITY;
      this.#options.onChange();
    }, afterMs);
    this.#timer.unref();
  }

  #plan(
    division: Division,
    spec: LlamaDeployment,
    candidates: ReadonlyMap<string, StageCandidate>,
  ): void {
    const nowMs = this.#options.clock.monotonicMs();
    if (division.isPlanning || nowMs < division.notBeforeMs) return;
    const free = unused(candidates, division.replicas).slice(0, MAX_WORKERS);
    division.isPlanning = true;
    division.isSettled = true;
    void this.#planned(spec, free, free[division.faults % free.length]?.node.link).then(
      (replica) => {
        division.isPlanning = false;
        division.failure = undefined;
        division.backoff.reset();
        const broken = division.broken.shift();
        const ends = broken && candidates.get(lastNode(broken))?.leaving !== undefined;
        division.replicas.push(ends ? following(replica, broken, candidates) : replica);
        this.#options.onChange();
      },
      (error: unknown) => {
        const failure = toAppError(error);
        const { code, message } = failure;
        const waitMs = division.backoff.nextMs();
        if (!NO_FAULT.has(code)) division.faults++;
        division.isPlanning = false;
        division.notBeforeMs = this.#options.clock.monotonicMs() + waitMs;
        if (division.failure?.message !== message) {
          const fields = { deployment: spec.key, code, error: message };
          this.#options.log.warn(fields, "a model could not be divided between workers");
        }
        division.failure = failure;
        this.#again(waitMs);
      },
    );
  }

  async #planned(
    spec: LlamaDeployment,
    free: readonly StageCandidate[],
    link: StageCandidate["node"]["link"],
  ): Promise<StagedReplica> {
    if (free.length < 2 || !link) {
      const message = `${free.length} workers are there that could have a stage of ${spec.key}, and it needs two: start more`;
      throw new AppError("unavailable", message);
    }
    const { key, file, sources, sha256, sizeBytes, license } = spec.weights;
    const plan = await link.planStages({
      weights: { key, file, sources: [...sources], sha256, sizeBytes, license },
      options: { ...spec.options },
      workers: free.map(({ node: { id, register }, memoryBytes }) => {
        return { node: id, name: register.name, memoryBytes: memoryBytes(spec.key) ?? 0 };
      }),
      maxStages: maxStagesOf(spec),
    });
    return replicaOf(spec, plan, free);
  }

  #place(
    places: Map<string, Map<string, DeploymentSpec>>,
    replica: StagedReplica,
    candidates: ReadonlyMap<string, StageCandidate>,
    isLeft: boolean,
  ): void {
    for (const { key, node, spec } of placedStages(replica, candidates)) {
      if (isLeft && key === replica.of.key) continue;
      const at = `${key}@${node}`;
      const known = this.#specs.get(at);
      // A worker that is away for a moment has no address.
      const parts = [...replica.parts, ...(replica.before?.replica.parts ?? [])];
      const isGone = parts.some((part) => !candidates.has(part.node));
      const kept = known && (isGone || isDeepStrictEqual(known, spec)) ? known : spec;
      this.#specs.set(at, kept);
      places.set(key, (places.get(key) ?? new Map()).set(node, kept));
    }
  }

  #forget(places: StagePlaces): void {
    for (const known of [this.#specs, this.#failingSinceMs]) {
      for (const at of known.keys()) {
        const [key = "", node = ""] = at.split("@");
        if (!places.get(key)?.has(node)) known.delete(at);
      }
    }
    const replicas = [...this.#divisions.values()].flatMap(allOf);
    const used = new Set(replicas.flatMap(({ parts }) => parts.map(({ node }) => node)));
    for (const node of this.#awaySinceMs.keys())
      if (!used.has(node)) this.#awaySinceMs.delete(node);
  }
}

/** Whether the placement is left open, so that the workers' memory decides. */
function isOpen({ placement }: LlamaDeployment): boolean {
  return (placement?.mode ?? "auto") === "auto";
}

/** Whether the last stage is there, or may come back there. */
function serves(replica: StagedReplica, candidates: ReadonlyMap<string, StageCandidate>): boolean {
  const last = candidates.get(lastNode(replica));
  return last !== undefined && (!last.leaving || last.node.replica(replica.of.key) !== undefined);
}

function allOf({ replicas, broken }: Division): readonly StagedReplica[] {
  return [...replicas, ...broken];
}

/** Workers that have no stage of these replicas. */
function unused(
  candidates: ReadonlyMap<string, StageCandidate>,
  replicas: readonly StagedReplica[],
): StageCandidate[] {
  const taken = new Set(replicas.flatMap(({ parts }) => parts.map(({ node }) => node)));
  return [...candidates.values()]
    .filter(({ leaving, node }) => !leaving && !taken.has(node.id) && canHaveStage(node))
    .toSorted(nearestTogether);
}

/** Workers of one fabric and rack follow each other, as the stages do. */
function nearestTogether({ node: a }: StageCandidate, { node: b }: StageCandidate): number {
  const place = ({ register }: StageCandidate["node"]) => [register.fabric, register.rack];
  const [one, other] = [place(a), place(b)].map((each) => each.join("\n")) as [string, string];
  if (one !== other) return one < other ? -1 : 1;
  return a.register.name < b.register.name ? -1 : 1;
}

function replicaOf(
  spec: LlamaDeployment,
  { stages, ...shared }: StagePlan__Output,
  free: readonly StageCandidate[],
): StagedReplica {
  const isKnown = stages.every(({ node }) => free.some((each) => each.node.id === node));
  if (stages.length < 2 || !isKnown) {
    throw new AppError("server_error", `a worker planned ${stages.length} stages of ${spec.key}`);
  }
  return { of: spec, parts: stages, shared };
}
