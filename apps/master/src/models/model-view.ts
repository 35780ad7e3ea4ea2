import type { ChatTemplateOrigin, ReplicaStatus } from "@heddle/contracts/engine";
import type { ReplicaRecord } from "@heddle/control/jobs/records/records";
import type { DeploymentRecord, ModelLineageRecord, ModelRecord } from "@heddle/control/state";
import type { NodeView } from "../nodes/node-directory.ts";

/** One model in GET /models: OpenAI's four members and the platform's own. */
export interface ModelView {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: string;
  readonly family: string;
  /** The registered context, in tokens. */
  readonly context_window: number;
  /** The context of every ready replica, in tokens; null if unknown. */
  readonly served_context_tokens: number | null;
  /** The origin of the ready replicas' chat template; null if unknown. */
  readonly chat_template: ChatTemplateOrigin | null;
  readonly availability: string;
  readonly intended_use: string;
  readonly capabilities: readonly string[];
  readonly backing: string;
  readonly stand_in: boolean;
  readonly deployment: string;
  /** The inputs of a model that a job has trained; null for others. */
  readonly lineage: LineageView | null;
  /** The best phase of any replica; `unplaced` if there is none. */
  readonly status: "ready" | "loading" | "pulling" | "failed" | "unplaced";
  readonly replicas: readonly ReplicaView[];
  /** What blocks a replica from being placed, and the reason of a permanent failure. */
  readonly waiting_for: readonly string[];
  readonly weights: {
    readonly file: string;
    readonly sources: readonly string[];
    readonly sha256: string | null;
    readonly license: string | null;
  } | null;
}

export interface LineageView {
  readonly job_id: string;
  readonly job_name: string;
  readonly project: string;
  readonly attempt: number;
  readonly algorithm: string;
  readonly sha256: string;
  readonly data_sha256: string | null;
  readonly code_version: string | null;
  readonly step: number | null;
  readonly loss: number | null;
}

export interface ReplicaView {
  readonly node: string;
  readonly phase: string;
  readonly pulled_bytes: number;
  readonly total_bytes: number;
  readonly message: string;
  readonly running: number;
  readonly waiting: number;
  readonly engine: string | null;
  readonly device: string | null;
  readonly context_tokens: number | null;
  readonly chat_template: ChatTemplateOrigin | null;
}

/** What prevents a deployment's replicas from serving. */
interface HeldBack {
  readonly waitsFor: (deployment: string) => readonly string[];
  /** Replicas that failed permanently. */
  readonly failures: readonly ReplicaRecord[];
}

export function viewModel(
  model: ModelRecord,
  deployment: DeploymentRecord | undefined,
  nodes: readonly NodeView[],
  { waitsFor, failures }: HeldBack,
): ModelView {
  const held = nodes.flatMap(({ id, replicas }) =>
    replicas
      .filter(({ deployment }) => deployment === model.deployment)
      .map((replica) => ({ id, replica })),
  );
  const replicas = held.map(({ id, replica }) => viewReplica(id, replica));
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
    deployment: model.deployment,
    lineage: model.lineage ? viewLineage(model.lineage) : null,
    status: statusOf(replicas, failures),
    replicas,
    waiting_for: [...failures.map(failureText), ...waitsFor(model.deployment)],
    weights: weights
      ? {
          file: weights.file,
          sources: weights.sources,
          sha256: weights.sha256 ?? null,
          license: weights.license ?? null,
        }
      : null,
  };
}

/**
 * Replicas of a deployment have the same file and options; those of an older worker report none.
 */
function chatTemplateOf(replicas: readonly ReplicaView[]): ChatTemplateOrigin | null {
  const telling = replicas.find((replica) => replica.phase === "ready" && replica.chat_template);
  return telling?.chat_template ?? null;
}

function viewLineage(lineage: ModelLineageRecord): LineageView {
  const { jobId, jobName, project, attempt, algorithm, sha256 } = lineage;
  return {
    ...{ job_id: jobId, job_name: jobName, project, attempt, algorithm, sha256 },
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

export function viewReplica(node: string, replica: ReplicaStatus): ReplicaView {
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
  };
}

/** A permanently failed replica has released its place and is still listed. */
function failureText({ nodeId, failure }: ReplicaRecord): string {
  return `Failed: on ${nodeId}: ${failure?.message} (${failure?.code}); it is not tried again and holds no GPU: remove the model, and register it with what works`;
}

function statusOf(
  replicas: readonly ReplicaView[],
  failures: readonly ReplicaRecord[],
): ModelView["status"] {
  for (const phase of ["ready", "loading", "pulling", "failed"] as const) {
    if (replicas.some((replica) => replica.phase === phase)) return phase;
  }
  return failures.length > 0 ? "failed" : "unplaced";
}
