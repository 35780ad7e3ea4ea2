import type { Model, ModelLineage, ModelReplica } from "@heddle/contracts/api/models";
import type { ChatTemplateOrigin, DeploymentSpec, ReplicaStatus } from "@heddle/contracts/engine";
import type { ModelStage, StageLoad } from "@heddle/contracts/models/model-division";
import type { ReplicaRecord } from "@heddle/control/jobs/records/records";
import { undividedReason } from "@heddle/control/jobs/scheduling/divided-models";
import type {
  DeploymentRecord,
  ModelAdapterRecord,
  ModelLineageRecord,
  ModelRecord,
} from "@heddle/control/state";
import type { NodeView } from "../nodes/node-directory.ts";
import { type StageWorkers, stoppedStage } from "../nodes/replicas/stopped-stage.ts";

type ModelStageView = NonNullable<ModelReplica["stages"]>[number];

/** What prevents a deployment's replicas from serving. */
interface HeldBack {
  readonly waitsFor: (deployment: string) => readonly string[];
  /** Why the placement `auto` does not divide it, as the leader knows. */
  readonly undivided: string | undefined;
  /** Replicas that failed permanently. */
  readonly failures: readonly ReplicaRecord[];
  /** The name of the node that users see. */
  readonly nameOf: (node: string) => string;
}

/** Whether the caller may know of the job that has trained the model. */
type ShowsLineage = { readonly showsLineage: boolean };

export function viewModel(
  model: ModelRecord,
  deployment: DeploymentRecord | undefined,
  nodes: readonly NodeView[],
  { waitsFor, undivided, failures, nameOf, showsLineage }: HeldBack & ShowsLineage,
): Model {
  const held = nodes.flatMap(({ id, replicas }) =>
    replicas
      .filter(({ deployment }) => deployment === model.deployment)
      .map((replica) => ({ id, replica })),
  );
  const workers = stageWorkers(nodes, nameOf);
  const replicas = held.map(({ id, replica }) => {
    const shown = viewReplica(id, replica, nodes);
    const stopped = stoppedStage(id, replica, workers);
    const isStopped = stopped && (shown.phase === "ready" || shown.phase === "loading");
    return isStopped ? { ...shown, phase: "loading" as const, message: stopped.message } : shown;
  });
  const weights = deployment?.spec.weights;
  return {
    id: model.id,
    object: "model",
    created: Math.floor(model.createdAtMs / 1000),
    owned_by: model.ownedBy,
    family: model.family,
    context_window: model.contextWindow,
    served_context_tokens: servedContextTokens(held.map(({ replica }) => replica)) ?? null,
    chat_template: chatTemplateOf(replicas),
    availability: model.availability,
    intended_use: model.intendedUse,
    capabilities: model.capabilities,
    backing: model.backing,
    stand_in: model.standIn,
    visibility: model.project === undefined ? "cluster" : "project",
    project: model.project ?? null,
    deployment: model.deployment,
    wanted_replicas: deployment?.replicas ?? 0,
    scaling: viewScaling(deployment),
    lineage: model.lineage && showsLineage ? viewLineage(model.lineage) : null,
    status: statusOf(replicas, failures, isAsleep(deployment)),
    replicas,
    undivided: (deployment && undividedReason(deployment.spec)) ?? undivided ?? null,
    waiting_for: [...failures.map(failureText), ...waitsFor(model.deployment)],
    weights: weights
      ? {
          file: weights.file,
          sources: weights.sources,
          sha256: weights.sha256 ?? null,
          license: weights.license ?? null,
        }
      : null,
    adapter: model.adapter ? viewAdapter(model.adapter) : null,
    upstream: viewUpstream(deployment?.spec),
  };
}

function viewAdapter({ base, scale, weights }: ModelAdapterRecord): Model["adapter"] {
  const { file, sources, sha256 } = weights;
  return { base, scale, file, sources, sha256: sha256 ?? null };
}

/** Without the name of its key, which concerns the workers' operators alone. */
function viewUpstream(spec: DeploymentSpec | undefined): Model["upstream"] {
  if (spec?.engine !== "openai") return null;
  const { baseUrl, command, model, dialect } = spec.upstream;
  return { base_url: baseUrl ?? null, command: command ?? null, model, dialect };
}

/**
 * Replicas of a deployment have the same file and options; those of an older worker report none.
 */
function chatTemplateOf(replicas: readonly ModelReplica[]): ChatTemplateOrigin | null {
  const reporting = replicas.find((replica) => replica.phase === "ready" && replica.chat_template);
  return reporting?.chat_template ?? null;
}

function viewLineage(lineage: ModelLineageRecord): ModelLineage {
  const { jobId, jobName, project, attempt, algorithm, sha256 } = lineage;
  return {
    job_id: jobId,
    job_name: jobName,
    project,
    attempt,
    algorithm,
    sha256,
    data_sha256: lineage.dataSha256 ?? null,
    code_version: lineage.codeVersion ?? null,
    step: lineage.step ?? null,
    loss: lineage.loss ?? null,
  };
}

/** The smallest context of a deployment's ready replicas, since any of them may get a call. */
export function servedContextTokens(replicas: readonly ReplicaStatus[]): number | undefined {
  let smallest: number | undefined;
  for (const { phase, info } of replicas) {
    if (phase !== "ready" || !info?.contextTokens) continue;
    smallest = Math.min(smallest ?? info.contextTokens, info.contextTokens);
  }
  return smallest;
}

function stageWorkers(nodes: readonly NodeView[], nameOf: HeldBack["nameOf"]): StageWorkers {
  const reports = (id: string) => nodes.some((node) => node.id === id && node.state !== "suspect");
  return { reports, nameOf };
}

/** `nodes` have the other stages of a divided model; without them its own one is shown alone. */
export function viewReplica(
  node: string,
  replica: ReplicaStatus,
  nodes?: readonly NodeView[],
): ModelReplica {
  return {
    node,
    phase: replica.phase,
    pulled_bytes: replica.pulledBytes,
    total_bytes: replica.totalBytes,
    message: replica.message,
    running: replica.load.running,
    waiting: replica.load.waiting,
    engine: replica.info?.engine ?? null,
    device: replica.info?.device ?? null,
    context_tokens: replica.info?.contextTokens ?? null,
    chat_template: replica.info?.chatTemplate ?? null,
    stages: replica.stage ? viewStages(node, replica, replica.stage, nodes) : null,
  };
}

function viewStages(
  node: string,
  replica: ReplicaStatus,
  stage: ModelStage,
  nodes: readonly NodeView[] | undefined,
): ModelStageView[] {
  const own = viewStage(node, stage, replica);
  if (!nodes) return [own];
  const earlier = stage.peers.map((peer) => {
    const held = nodes.find(({ id }) => id === peer.node)?.replicas;
    const found = held?.find(({ deployment }) => deployment === peer.deployment);
    return viewStage(peer.node, peer, found);
  });
  return [...earlier, own];
}

function viewStage(
  node: string,
  { from, to, memoryBytes }: Pick<ModelStage, "from" | "to" | "memoryBytes">,
  replica: ReplicaStatus | undefined,
): ModelStageView {
  return {
    node,
    first_block: from,
    last_block: to - 1,
    phase: replica?.phase ?? "missing",
    message: replica?.message ?? "",
    device: replica?.info?.device ?? null,
    planned_bytes: memoryBytes,
    memory_bytes: replica?.load.residentBytes ?? 0,
    ...viewTimes(replica?.load.stage),
  };
}

function viewTimes(
  load: StageLoad | undefined,
): Pick<ModelStageView, "steps" | "step_ms" | "idle_share" | "hop_ms"> {
  const { steps = 0, busyMs = 0, idleMs = 0, hops = 0, hopMicros = 0 } = load ?? {};
  return {
    steps,
    step_ms: steps > 0 ? rounded(busyMs / steps) : null,
    idle_share: busyMs + idleMs > 0 ? rounded(idleMs / (busyMs + idleMs)) : null,
    hop_ms: hops > 0 ? rounded(hopMicros / 1_000 / hops) : null,
  };
}

function rounded(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}

/** A permanently failed replica has released its place and is still listed. */
function failureText({ nodeId, failure }: ReplicaRecord): string {
  return `Failed: on ${nodeId}: ${failure?.message} (${failure?.code}); it is not tried again and holds no GPU: remove the model, and register it with what works`;
}

function statusOf(
  replicas: readonly ModelReplica[],
  failures: readonly ReplicaRecord[],
  asleep: boolean,
): Model["status"] {
  for (const phase of ["ready", "loading", "pulling", "failed"] as const) {
    if (replicas.some((replica) => replica.phase === phase)) return phase;
  }
  if (failures.length > 0) return "failed";
  return asleep ? "idle" : "unplaced";
}

/** Whether it has no replica until a call comes. */
function isAsleep(deployment: DeploymentRecord | undefined): boolean {
  return deployment?.scaling !== undefined && deployment.replicas === 0;
}

function viewScaling(deployment: DeploymentRecord | undefined): Model["scaling"] {
  if (!deployment?.scaling) return null;
  const { scaling, scaledAtMs, scaleReason } = deployment;
  const { min, max, idleMs, targetQueue, targetTtftMs, coolDownMs } = scaling;
  return {
    min,
    max,
    idle_unload_s: idleMs === undefined ? null : idleMs / 1000,
    target_queue: targetQueue,
    target_ttft_ms: targetTtftMs,
    cool_down_s: coolDownMs / 1000,
    scaled_at: scaledAtMs === undefined ? null : Math.floor(scaledAtMs / 1000),
    reason: scaleReason ?? null,
  };
}
