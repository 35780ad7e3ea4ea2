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
  /** The name of the weights' file; empty where the cluster does not tell. */
  readonly weightsFile: string;
  /** What really answers under this id, in words. */
  readonly backing: string;
  /** True where something smaller than the id promises answers. */
  readonly standIn: boolean;
  readonly replicas: readonly ListedReplica[];
  /** What holds back a replica that the scheduler is to place. */
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

/** The model to talk to where none is named: the first that is ready, else the first. */
export function defaultModel(models: readonly ListedModel[]): ListedModel | undefined {
  return models.find(isReady) ?? models[0];
}

/** True where no replica serves or is on its way, since each has failed. */
export function hasFailed({ replicas }: ListedModel): boolean {
  return replicas.length > 0 && replicas.every(({ phase }) => phase === "failed");
}

/** Why the model's replicas failed, as the end of a sentence: without a full stop, in one line. */
export function modelFailure({ replicas }: ListedModel): string {
  const reason = replicas[0]?.message.replace(/[.\s]+$/, "").replace(/\s*\n\s*/g, " ");
  return reason || "the worker did not say why";
}

export function isReady(model: ListedModel): boolean {
  return model.replicas.some((replica) => replica.phase === "ready");
}
