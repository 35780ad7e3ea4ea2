import { isDeepStrictEqual } from "node:util";
import type { Clock } from "@heddle/base/clock";
import type { Random } from "@heddle/base/random";
import type { DeploymentSpec, LlamaDeployment } from "@heddle/contracts/engine";
import type { DeploymentRecord } from "@heddle/control/state";
import type { Log } from "@heddle/observability/logger";
import { DivisionPlanner, type WorkerGroups } from "./division-planner.ts";
import type { DivisionNote } from "./divisions.ts";
import { following, mended, succeeding } from "./mended-replica.ts";
import { PlacedSpecs } from "./placed-specs.ts";
import { allDivided, type WholeReplicas } from "./replica-split.ts";
import { ReplicaSplits } from "./replica-splits.ts";
import type { FollowedStages, StageDevices } from "./stage-devices.ts";
import { StageHolds } from "./stage-holds.ts";
import {
  alike,
  canHaveStage,
  divisionOf,
  lastNode,
  reportedReplica,
  type StageCandidate,
  type StagedReplica,
  stageBuildOf,
  takesDevices,
} from "./staged-replica.ts";
import { WakeUp } from "./wake-up.ts";

/** A new leader takes up the replicas that workers report within this time. */
const ADOPTS_MS = 3_000;
/** How long replicas that lack a stage keep GPUs, and their other stages: two may wait for each other's. */
const KEEPS_GPUS_MS = 30_000;

/** Where the replicas of models that workers divide go. */
export interface StagedPlacement extends FollowedStages {
  /** Keyed by deployment: its whole replicas beside those. */
  readonly whole: ReadonlyMap<string, WholeReplicas>;
}

export interface StagedReplicasOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Called when the places may have changed. */
  readonly onChange: () => void;
  readonly devices: Pick<StageDevices, "serves" | "held" | "memory" | "secure" | "need">;
}

/** What is known of one deployment's division. */
interface Division {
  replicas: StagedReplica[];
  /** A stage of these is gone, and no worker can take it: its own may, until they are planned again. */
  broken: StagedReplica[];
  readonly planner: DivisionPlanner;
  /** Since when it has fewer replicas than wanted, and has got no more GPUs. */
  lackingSinceMs: number | undefined;
  /** The nodes on which it holds GPUs. */
  holders: number;
  /** No replica of an earlier leader is taken up any more. */
  isSettled: boolean;
}

/** A deployment of libllama. */
type LlamaRecord = DeploymentRecord & { readonly spec: LlamaDeployment };

/** All workers at one time, by node. */
type Workers = ReadonlyMap<string, StageCandidate>;

/**
 * The replicas of models that workers divide. The leader keeps the plans in memory, and a new leader
 * learns them from the workers that have the last stages. A worker that leaves is replaced; where none
 * has the memory the replica is planned again.
 */
export class StagedReplicas {
  readonly #options: StagedReplicasOptions;
  readonly #wakeUp: WakeUp;
  readonly #splits: ReplicaSplits;
  readonly #holds: StageHolds;
  readonly #specs = new PlacedSpecs();
  /** Keyed by deployment. */
  readonly #divisions = new Map<string, Division>();
  #leaderSinceMs: number | undefined;

  constructor(options: StagedReplicasOptions) {
    this.#options = options;
    this.#wakeUp = new WakeUp(options.clock, options.onChange);
    this.#splits = new ReplicaSplits(options, this.#wakeUp);
    this.#holds = new StageHolds(options.clock, this.#wakeUp);
  }

  close(): void {
    this.#wakeUp.close();
  }

  /** Forgets all: another master leads. */
  clear(): void {
    this.#leaderSinceMs = undefined;
    this.#divisions.clear();
    this.#splits.clear();
    this.#holds.clear();
    this.#specs.clear();
  }

  /** Keyed by deployment: why it is not divided, and what it takes undivided. */
  notes(): ReadonlyMap<string, DivisionNote> {
    const notes = new Map<string, DivisionNote>();
    const add = (key: string, note: DivisionNote) => notes.set(key, { ...notes.get(key), ...note });
    for (const [key, { planner }] of this.#divisions) {
      if (planner.failure) add(key, { misfit: planner.failure.message });
    }
    for (const [key, undivided] of this.#splits.undivided) add(key, { undivided });
    for (const [key, wholeBytes] of this.#splits.sizes.known()) add(key, { wholeBytes });
    for (const [key, misfit] of this.#splits.sizes.reading()) add(key, { misfit });
    return notes;
  }

  /** Brings the replicas up to date; only the leader has new ones planned. */
  places(
    deployments: ReadonlyMap<string, DeploymentRecord>,
    candidates: readonly StageCandidate[],
    isLeader: boolean,
  ): StagedPlacement {
    if (isLeader) this.#leaderSinceMs ??= this.#options.clock.monotonicMs();
    const workers = new Map(candidates.map((each) => [each.node.id, each]));
    const places = new Map<string, Map<string, DeploymentSpec>>();
    const whole = new Map<string, WholeReplicas>();
    const [settled, keeping, lacking] = [new Set<string>(), new Set<string>(), new Set<string>()];
    const divisible = new Map([...deployments].filter(this.#isDivisible));
    for (const [key, record] of divisible) {
      const division = this.#division(key);
      const adoptsMs = isLeader && !division.isSettled ? this.#adoptsMs() : 0;
      if (adoptsMs > 0) adopt(division, record.spec, workers);
      const onGpus = this.#options.devices.serves(key);
      const split = onGpus
        ? allDivided(record)
        : this.#splits.of(record, candidates, allOf(division), isLeader);
      // Until the workers' memory is known it is placed neither whole nor divided.
      if (!split || split.divided > 0 || split.whole) places.set(key, new Map());
      if (!split?.divided && !split?.whole) {
        if (onGpus && isLeader && adoptsMs <= 0) settled.add(key);
        this.#divisions.delete(key);
        continue;
      }
      if (split.whole) whole.set(key, split.whole);
      const free = candidates.filter(
        ({ node, memoryBytes }) =>
          !split.whole?.workers.has(node.id) &&
          !(onGpus && (memoryBytes(key) === 0 || !takesDevices(node))),
      );
      this.#mend(division, record.spec, workers, free);
      division.replicas.splice(split.divided);
      division.broken.splice(split.divided - division.replicas.length);
      if (onGpus && this.#keepsGpus(key, division, split.divided)) keeping.add(key);
      else if (onGpus) division.broken = [];
      if (division.replicas.length === split.divided) division.planner.settle();
      else {
        lacking.add(key);
        if (isLeader && adoptsMs > 0) this.#wakeUp.after(adoptsMs);
        else if (isLeader) this.#plan(division, record.spec, workers, free);
      }
      if (onGpus && isLeader && adoptsMs <= 0 && !division.planner.isPlanning) settled.add(key);
      this.#place(places, division, workers);
    }
    for (const key of this.#divisions.keys()) if (!divisible.has(key)) this.#divisions.delete(key);
    this.#splits.keep(divisible);
    this.#holds.keep([...this.#divisions.values()].flatMap(allOf));
    this.#specs.keep(places);
    return { places, whole, settled, keeping, lacking };
  }

  readonly #isDivisible = (entry: [string, DeploymentRecord]): entry is [string, LlamaRecord] =>
    this.#options.devices.serves(entry[0]) ||
    (entry[1].spec.engine === "llama" && divisionOf(entry[1]) !== "whole");

  #division(key: string): Division {
    let division = this.#divisions.get(key);
    if (!division) {
      const planner = new DivisionPlanner(this.#options, this.#wakeUp);
      const empty = { replicas: [], broken: [], lackingSinceMs: undefined, holders: 0 };
      division = { ...empty, planner, isSettled: false };
      this.#divisions.set(key, division);
    }
    return division;
  }

  /** Whether replicas lack a stage, and have not for long, or have just got GPUs. */
  #keepsGpus(key: string, division: Division, wanted: number): boolean {
    const nowMs = this.#options.clock.monotonicMs();
    const isWhole = division.replicas.length === wanted;
    const holders = this.#options.devices.held(key).size;
    if (holders > division.holders) division.lackingSinceMs = undefined;
    division.holders = holders;
    division.lackingSinceMs = isWhole ? undefined : (division.lackingSinceMs ?? nowMs);
    const leftMs = (division.lackingSinceMs ?? Number.NEGATIVE_INFINITY) + KEEPS_GPUS_MS - nowMs;
    if (leftMs > 0) this.#wakeUp.after(leftMs);
    return leftMs > 0;
  }

  /** For how long a new leader listens for what workers have. */
  #adoptsMs(): number {
    return (this.#leaderSinceMs ?? 0) + ADOPTS_MS - this.#options.clock.monotonicMs();
  }

  /** Gives the stages of lost workers to free ones; a replica for which that cannot be done is planned again. */
  #mend(
    division: Division,
    spec: LlamaDeployment,
    workers: Workers,
    free: readonly StageCandidate[],
  ): void {
    const onGpus = this.#options.devices.serves(spec.key);
    const held = this.#options.devices.held(spec.key);
    const sound: StagedReplica[] = [];
    const broken: StagedReplica[] = [];
    for (const replica of allOf(division)) {
      if (!isDeepStrictEqual(replica.of, spec)) continue;
      const others = unused(free, [...sound, ...allOf(division)]);
      const [most] = alike(
        replica.parts.flatMap(({ node }) => workers.get(node) ?? []),
        others,
      );
      const spares = others.filter((each) => !most || stageBuildOf(each) === stageBuildOf(most));
      const gpusOf = (node: string) => {
        if (!onGpus || workers.get(node)?.memoryBytes(spec.key) !== 0) return "present";
        return held.has(node) ? "failed" : "taken";
      };
      const holds = this.#holds.of(replica, { spares, workers, gpusOf });
      const next = mended(replica, { holds, spares, workers, cuts: this.#holds.cuts });
      if (next) sound.push(next);
      else if (serves(replica, workers)) broken.push(replica);
    }
    // Their workers report them until they have unloaded them.
    if (sound.length < division.replicas.length) division.isSettled = true;
    division.replicas = sound;
    division.broken = broken;
  }

  #plan(
    division: Division,
    spec: LlamaDeployment,
    workers: Workers,
    free: readonly StageCandidate[],
  ): void {
    const onGpus = this.#options.devices.serves(spec.key);
    const groups = onGpus
      ? this.#groups(division, spec.key, workers)
      : [this.#able(division, free)];
    const isAsked = division.planner.plan(spec, groups, (planned) => {
      const broken = division.broken.shift();
      const ends = broken && workers.get(lastNode(broken))?.leaving !== undefined;
      division.replicas.push(ends ? following(planned, broken, workers) : planned);
      this.#options.onChange();
    });
    if (isAsked) division.isSettled = true;
  }

  /** Workers that could have the stages of another replica. */
  #able(division: Division, free: readonly StageCandidate[]): readonly StageCandidate[] {
    const able = alike(unused(free, division.replicas));
    const connected = this.#holds.cuts.connected(able);
    return connected.length < 2 ? able : connected;
  }

  /** Workers with GPUs: those that hold theirs, these and free ones, and all. */
  #groups(division: Division, key: string, workers: Workers): WorkerGroups {
    const { devices } = this.#options;
    const held = devices.held(key);
    const freed = devices.memory("freed");
    const withGpus = [...workers.values()].flatMap((each) => {
      const bytes = freed(each.node.id, key);
      return bytes > 0 && takesDevices(each.node) ? [{ ...each, memoryBytes: () => bytes }] : [];
    });
    const all = this.#able(division, withGpus);
    const own = all.filter(({ node }) => held.has(node.id));
    const free = all.filter(({ node }) => workers.get(node.id)?.memoryBytes(key) !== 0);
    const groups: (readonly StageCandidate[])[] = [];
    for (const group of [own, free, all]) {
      if (group.length > (groups.at(-1)?.length ?? 1)) groups.push(group);
    }
    return groups.length > 0 ? groups : [all];
  }

  #place(
    places: Map<string, Map<string, DeploymentSpec>>,
    division: Division,
    workers: Workers,
  ): void {
    for (const replica of allOf(division)) {
      const { key } = replica.of;
      const held = this.#options.devices.held(key);
      const onGpus = this.#options.devices.serves(key);
      // A worker that leaves unloads it when its calls have ended.
      const isLeft =
        division.broken.includes(replica) && workers.get(lastNode(replica))?.leaving !== undefined;
      const isKept = (stage: string, node: string) => {
        const isTaken = onGpus && !held.has(node) && workers.get(node)?.memoryBytes(key) === 0;
        return !isTaken && !(isLeft && stage === key);
      };
      this.#specs.place(places, replica, workers, isKept);
    }
  }
}

/** Takes up the replicas that an earlier leader has planned. */
function adopt(division: Division, spec: LlamaDeployment, workers: Workers): void {
  const known = division.replicas.flatMap((replica) => [replica, replica.before?.replica ?? []]);
  const drivers = new Set(known.flat().map(lastNode));
  const reported = [...workers].flatMap(([id, { node }]) => {
    const stage = drivers.has(id) ? undefined : node.replica(spec.key)?.stage;
    return stage && stage.peers.length > 0 ? [reportedReplica(spec, id, stage)] : [];
  });
  if (reported.length === 0) return;
  division.replicas = succeeding([...division.replicas, ...reported], workers);
}

/** Whether the last stage is there, or may come back there. */
function serves(replica: StagedReplica, workers: Workers): boolean {
  const last = workers.get(lastNode(replica));
  return last !== undefined && (!last.leaving || last.node.replica(replica.of.key) !== undefined);
}

function allOf({ replicas, broken }: Division): readonly StagedReplica[] {
  return [...replicas, ...broken];
}

/** Workers that have no stage of these replicas. */
function unused(
  candidates: readonly StageCandidate[],
  replicas: readonly StagedReplica[],
): StageCandidate[] {
  const taken = new Set(replicas.flatMap(({ parts }) => parts.map(({ node }) => node)));
  return candidates
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
