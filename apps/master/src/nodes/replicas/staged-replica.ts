import type { LlamaDeployment, ReplicaStatus } from "@heddle/contracts/engine";
import type { ModelStage, PlacementMode, StagePeer } from "@heddle/contracts/models/model-division";
import { undividedReason } from "@heddle/control/jobs/scheduling/divided-models";
import type { DeploymentRecord } from "@heddle/control/state";
import { stageBuildIn } from "@heddle/rpc/engine-features";
import type { AttachedNode } from "../attached-node.ts";

/** Stages of a model whose deployment sets no bound. */
const DEFAULT_MAX_STAGES = 8;

/** A worker that may get a stage. */
export interface StageCandidate {
  readonly node: Pick<AttachedNode, "id" | "replica" | "openCalls" | "link" | "register">;
  readonly leaving: "draining" | "drained" | undefined;
  /** Memory for replicas of a deployment, beside what else holds some; undefined if not known yet. */
  readonly memoryBytes: (deployment: string) => number | undefined;
}

/** What a stage needs to know of another one's worker. */
interface StageNode {
  readonly node: {
    readonly register: { readonly name: string; readonly address: string };
    readonly replica: (key: string) => Pick<ReplicaStatus, "phase"> | undefined;
  };
}

/** One stage of a replica. */
export interface StagePart {
  readonly node: string;
  /** A worker that leaves, and serves the stage until `node` is ready. */
  readonly before?: string | undefined;
  readonly from: number;
  readonly to: number;
  readonly memoryBytes: number;
}

/** The key of one of a replica's stages. */
export function keyOfPart(replica: StagedReplica, index: number): string {
  const isLast = index === replica.parts.length - 1;
  return isLast ? replica.of.key : stageKey(replica.of.key, lastNode(replica), index);
}

/** What is the same for all stages: sizes of the cache, and what names the model's content. */
export type SharedByStages = Pick<
  ModelStage,
  "contextTokens" | "kvTokens" | "maxSequences" | "index"
>;

/** A replica of a model that several workers divide. */
export interface StagedReplica {
  /** The deployment that it was planned for. */
  readonly of: LlamaDeployment;
  /** In order; the node of the last one takes the requests. */
  readonly parts: readonly StagePart[];
  readonly shared: SharedByStages;
  /** One whose last stage's worker leaves: it serves until this one is ready. */
  readonly before?: LeavingReplica | undefined;
}

interface LeavingReplica {
  readonly replica: StagedReplica;
  /** True if the workers have memory for both; otherwise the old stages are unloaded first. */
  readonly overlaps: boolean;
}

/** The key of a stage that is not the last, on its worker. No deployment has a `#` in its own. */
function stageKey(deployment: string, replica: string, index: number): string {
  return `${deployment}#${replica}/${index}`;
}

/** What a worker is to load, under its key. */
interface PlacedStage {
  readonly key: string;
  readonly node: string;
  readonly spec: LlamaDeployment;
}

/** The node that takes a replica's requests. */
export function lastNode({ parts }: StagedReplica): string {
  return parts.at(-1)!.node;
}

/** What serves until the replica is ready, as long as its last stage is there. */
export function takesPlaceOf(
  { of, before }: StagedReplica,
  workers: ReadonlyMap<string, StageNode>,
): LeavingReplica | undefined {
  const last = before && workers.get(lastNode(before.replica))?.node.replica(of.key);
  return last && last.phase !== "failed" ? before : undefined;
}

/**
 * What each worker is to load, of the replica and of the one before it. That one's last stage is
 * kept until this one is ready, its other stages until its calls have ended and it is unloaded.
 */
export function placedStages(
  replica: StagedReplica,
  workers: ReadonlyMap<string, StageNode>,
): readonly PlacedStage[] {
  const own = stagesOf(replica, workers);
  const before = takesPlaceOf(replica, workers);
  if (!before) return own;
  const old = stagesOf(before.replica, workers);
  const used = new Set(old.map(({ node }) => node));
  const { key } = replica.of;
  const isReady = workers.get(lastNode(replica))?.node.replica(key)?.phase === "ready";
  const next = before.overlaps ? own : own.filter(({ node }) => !used.has(node));
  const left = before.overlaps && !isReady ? old : old.filter((stage) => stage.key !== key);
  return [...next, ...left];
}

function stagesOf(
  { of, parts, shared }: StagedReplica,
  workers: ReadonlyMap<string, StageNode>,
): readonly PlacedStage[] {
  const last = parts.at(-1)!;
  const registered = (node: string) => workers.get(node)?.node.register;
  const driver = registered(last.node)?.name ?? "";
  const keyOf = (index: number) => stageKey(of.key, last.node, index);
  const serving = parts.map((part, index) => servingNode(part, keyOf(index), workers));
  const peers = parts.slice(0, -1).map(({ from, to, memoryBytes }, index): StagePeer => {
    const node = serving[index]!;
    const address = registered(node)?.address ?? "";
    return { node, address, deployment: keyOf(index), from, to, memoryBytes };
  });
  return parts.flatMap(({ node, from, to, memoryBytes }, index): PlacedStage[] => {
    const isLast = index === parts.length - 1;
    const key = isLast ? of.key : keyOf(index);
    const stage = { from, to, driver, peers: isLast ? peers : [], memoryBytes, ...shared };
    const spec = { ...of, key, stage };
    return [...new Set([node, serving[index]!])].map((each) => ({ key, node: each, spec }));
  });
}

function servingNode(
  { node, before }: StagePart,
  key: string,
  workers: ReadonlyMap<string, StageNode>,
): string {
  const isReady = (id: string) => workers.get(id)?.node.replica(key)?.phase === "ready";
  return before !== undefined && isReady(before) && !isReady(node) ? before : node;
}

/** What a worker with the last stage reports, as a replica. */
export function reportedReplica(
  of: LlamaDeployment,
  node: string,
  { from, to, peers, memoryBytes, driver: _, ...shared }: ModelStage,
): StagedReplica {
  return {
    of,
    parts: [...peers, { node, from, to, memoryBytes }],
    shared,
  };
}

export function canHaveStage({ register, link }: StageCandidate["node"]): boolean {
  return link !== undefined && register.engineFeatures.includes("stages");
}

/** Whether all stages of the worker run on the devices that a master names. */
export function takesDevices({ register }: Pick<StageCandidate["node"], "register">): boolean {
  return register.engineFeatures.includes("stage-devices");
}

/**
 * The largest group of workers whose stages work with each other. Of equally large groups it is the
 * one with which more of the others work.
 */
export function alike(
  workers: readonly StageCandidate[],
  others: readonly StageCandidate[] = [],
): readonly StageCandidate[] {
  const groups = [...Map.groupBy(workers, stageBuildOf)];
  const more = (build: string) => others.filter((each) => stageBuildOf(each) === build).length;
  const [largest] = groups.toSorted(
    ([build, a], [other, b]) => b.length - a.length || more(other) - more(build),
  );
  return largest?.[1] ?? [];
}

export function stageBuildOf({ node }: StageCandidate): string {
  return stageBuildIn(node.register.engineFeatures);
}

/** The most stages that a deployment may have. */
export function maxStagesOf({ placement }: LlamaDeployment): number {
  return placement?.maxStages ?? DEFAULT_MAX_STAGES;
}

/**
 * Whether workers divide a deployment's replicas on their CPUs: all of them, none, or those that no
 * single worker can hold.
 */
export function divisionOf({ spec }: DeploymentRecord): PlacementMode {
  if (spec.engine !== "llama") return "whole";
  const { mode = "auto" } = spec.placement ?? {};
  return mode === "auto" && undividedReason(spec) !== undefined ? "whole" : mode;
}
