import type { Heddle } from "@heddle/client/heddle";
import { fieldsOf, numberOf, recordsOf, textOf, textsOf } from "./json-fields.ts";

/** One copy of a model on one worker. */
export interface ListedReplica {
  readonly node: string;
  /** pulling, loading, ready, failed or unloading. */
  readonly phase: string;
  readonly pulledBytes: number;
  readonly totalBytes: number;
  readonly message: string;
}

/** A model as `GET /api/v1/models` lists it. */
export interface ListedModel {
  readonly id: string;
  readonly contextWindow: number | undefined;
  /** The file name of the weights; empty if the cluster does not send it. */
  readonly weightsFile: string;
  /** A description of the weights that serve this id. */
  readonly backing: string;
  /** True if a smaller model serves this id. */
  readonly standIn: boolean;
  readonly replicas: readonly ListedReplica[];
  /** Why a replica has no place yet. */
  readonly waitingFor: readonly string[];
}

export async function listModels({ models }: Heddle, signal?: AbortSignal): Promise<ListedModel[]> {
  return recordsOf(await models.list({ signal })).map((model) => ({
    id: textOf(model["id"]),
    contextWindow: numberOf(model["context_window"]),
    weightsFile: textOf(fieldsOf(model["weights"])["file"]),
    backing: textOf(model["backing"]),
    standIn: model["stand_in"] === true,
    waitingFor: textsOf(model["waiting_for"]),
    replicas: recordsOf(model["replicas"]).map((replica) => ({
      node: textOf(replica["node"]),
      phase: textOf(replica["phase"]),
      pulledBytes: numberOf(replica["pulled_bytes"]) ?? 0,
      totalBytes: numberOf(replica["total_bytes"]) ?? 0,
      message: textOf(replica["message"]),
    })),
  }));
}

/** The model to use if none is named: the first that is ready, else the first. */
export function defaultModel(models: readonly ListedModel[]): ListedModel | undefined {
  return models.find(isReady) ?? models[0];
}

/** True if every replica has failed. */
export function hasFailed({ replicas }: ListedModel): boolean {
  return replicas.length > 0 && replicas.every(({ phase }) => phase === "failed");
}

/** Why the model's replicas failed, in one line without a full stop. */
export function modelFailure({ replicas }: ListedModel): string {
  const reason = replicas[0]?.message.replace(/[.\s]+$/, "").replace(/\s*\n\s*/g, " ");
  return reason || "the worker did not say why";
}

export function isReady(model: ListedModel): boolean {
  return model.replicas.some((replica) => replica.phase === "ready");
}
