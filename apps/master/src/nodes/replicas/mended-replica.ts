import type { StageCuts } from "./stage-cuts.ts";
import {
  lastNode,
  type StageCandidate,
  type StagedReplica,
  type StagePart,
  takesPlaceOf,
} from "./staged-replica.ts";

/**
 * How a stage's worker has it. One that leaves serves until another one takes over; one that is lost
 * may come back until it is gone.
 */
export type StageHold = "firm" | "leaving" | "lost" | "gone";

interface Mending {
  /** The holds of the replica's stages. */
  readonly holds: readonly StageHold[];
  /** Workers that have no stage. */
  readonly spares: readonly StageCandidate[];
  /** All workers. */
  readonly workers: ReadonlyMap<string, StageCandidate>;
  readonly cuts: Pick<StageCuts, "between">;
}

/**
 * The replica with other workers for the stages that are lost or leave, so that the others keep
 * theirs. Undefined where no worker has the memory for one that is gone, or for the last one where it is
 * lost; others wait then.
 */
export function mended(found: StagedReplica, mending: Mending): StagedReplica | undefined {
  const { holds, workers } = mending;
  const before = takesPlaceOf(found, workers);
  const replica = before === found.before ? found : { ...found, before };
  if (holds.every((hold) => hold === "firm")) return replica;
  const last = holds.at(-1);
  if (last === "firm") return withSpares(replica, mending);
  const next = successor(replica, mending);
  if (next && (last !== "leaving" || next.before?.overlaps !== false)) return next;
  return last === "leaving" ? withSpares(replica, mending) : before?.replica;
}

/** The last stage stays. */
function withSpares(
  replica: StagedReplica,
  { holds, spares, workers, cuts }: Mending,
): StagedReplica | undefined {
  const free = nearestFirst(spares, replica, workers);
  const parts: StagePart[] = [];
  for (const [index, part] of replica.parts.entries()) {
    const isKept = holds[index] === "firm" || index === replica.parts.length - 1;
    const spare = isKept ? undefined : taken(free, replica, part, cuts);
    if (!spare && !isKept && holds[index] === "gone") return undefined;
    const before = holds[index] === "leaving" ? part.node : undefined;
    parts.push(spare ? { ...part, node: spare.node.id, before } : part);
  }
  return { ...replica, parts };
}

/** Another worker has the last stage. */
function successor(replica: StagedReplica, mending: Mending): StagedReplica | undefined {
  const { holds, spares, workers, cuts } = mending;
  const free = nearestFirst(spares, replica, workers);
  const parts = replica.parts.map(({ before: _, ...part }) => part);
  const last = taken(free, replica, replica.parts.at(-1)!, cuts);
  if (!last) return undefined;
  const next = { ...replica, parts: parts.with(-1, { ...parts.at(-1)!, node: last.node.id }) };
  for (const [index, part] of parts.slice(0, -1).entries()) {
    if (holds[index] === "firm") continue;
    const spare = taken(free, next, part, cuts);
    if (spare) next.parts[index] = { ...part, node: spare.node.id };
    else if (holds[index] === "gone") return undefined;
  }
  return hasCalls(replica, workers) ? following(next, replica, workers) : next;
}

/** Whether its last stage takes calls, or has some that wait for the stage of another worker. */
function hasCalls(replica: StagedReplica, workers: Mending["workers"]): boolean {
  const node = workers.get(lastNode(replica))?.node;
  const last = node?.replica(replica.of.key);
  return last !== undefined && (last.phase === "ready" || node!.openCalls(last) > 0);
}

/** The replica, before which the other one serves until it is ready. */
export function following(
  replica: StagedReplica,
  other: StagedReplica,
  workers: ReadonlyMap<string, StageCandidate>,
): StagedReplica {
  const overlaps = replica.parts.every(({ node, memoryBytes }) => {
    const same = other.parts.find((part) => part.node === node);
    const has = workers.get(node)?.memoryBytes(replica.of.key) ?? 0;
    return !same || memoryBytes + same.memoryBytes <= has;
  });
  return { ...replica, before: { replica: { ...other, before: undefined }, overlaps } };
}

/** Sorts workers of the rack in which stages stay first, then those of its fabric. */
function nearestFirst(
  spares: readonly StageCandidate[],
  { parts }: StagedReplica,
  workers: Mending["workers"],
): StageCandidate[] {
  const staying = parts.map(({ node }) => workers.get(node)).findLast(isStaying)?.node.register;
  const distance = ({ node: { register } }: StageCandidate) =>
    register.fabric !== staying?.fabric ? 2 : Number(register.rack !== staying.rack);
  return spares.toSorted((a, b) => distance(a) - distance(b));
}

function isStaying(worker: StageCandidate | undefined): boolean {
  return worker !== undefined && worker.leaving === undefined;
}

/** The first that can take the part; it is free no more. */
function taken(
  free: StageCandidate[],
  replica: StagedReplica,
  part: StagePart,
  cuts: Mending["cuts"],
): StageCandidate | undefined {
  const at = free.findIndex((spare) => canTake(spare, replica, part, cuts));
  return at < 0 ? undefined : free.splice(at, 1)[0];
}

/** Whether a worker has the memory for the part, and the last stage's worker and the others reach each other. */
export function canTake(
  { node, memoryBytes }: StageCandidate,
  { of, parts }: StagedReplica,
  { to, ...part }: StagePart,
  cuts: Mending["cuts"],
): boolean {
  const last = parts.at(-1)!;
  const linked = to === last.to ? parts.slice(0, -1) : [last];
  return (
    (memoryBytes(of.key) ?? 0) >= part.memoryBytes &&
    linked.every((each) => !cuts.between(each.node, node.id))
  );
}

/** Replicas of leaving workers serve until others are ready. */
export function succeeding(
  reported: readonly StagedReplica[],
  workers: ReadonlyMap<string, StageCandidate>,
): StagedReplica[] {
  const isLeft = (replica: StagedReplica) => workers.get(lastNode(replica))?.leaving !== undefined;
  const kept = reported.filter((replica) => !isLeft(replica));
  for (const replica of reported.filter(isLeft)) {
    const nodes = new Set(replica.parts.map(({ node }) => node));
    const at = kept.findIndex(
      ({ before, parts }) => !before && parts.some(({ node }) => nodes.has(node)),
    );
    if (at < 0) kept.push(replica);
    else kept[at] = following(kept[at]!, replica, workers);
  }
  return kept;
}
