import type { Model } from "@heddle/contracts/api/models";
import type { InferenceModelSpec } from "@heddle/contracts/kubernetes/custom-resources";
import type {
  ConditionNow,
  CustomResource,
  ResourceStatus,
} from "../kubernetes/custom-resource.ts";
import { partsOfModel, partsText } from "./model-parts.ts";

export type InferenceModelObject = CustomResource<
  Omit<InferenceModelSpec, "id"> & { readonly id?: string | undefined },
  ResourceStatus & { readonly modelId?: string | undefined; readonly settings?: string | undefined }
>;

/** The status of an object whose model this is; null removes a field. */
export function statusOfModel(model: Model) {
  const { id, status, replicas, wanted_replicas: wanted, waiting_for: blockers } = model;
  const failed = replicas.find(({ phase }) => phase === "failed");
  const phase = `${status.charAt(0).toUpperCase()}${status.slice(1)}`;
  const ready = replicas.filter((replica) => replica.phase === "ready").length;
  const isReady = status === "ready" || status === "idle";
  const isOff = wanted === 0 && !isReady;
  const message = blockers[0] ?? failed?.message ?? (isOff ? "no replica is wanted" : null);
  const reason =
    blockers.length > 0 ? "Unplaced" : failed ? "ReplicaFailed" : isOff ? "ScaledToZero" : null;
  return {
    phase,
    reason,
    message,
    modelId: id,
    replicas: replicas.length,
    readyReplicas: ready,
    wanted: String(wanted),
    settings: partsText(partsOfModel(model)),
    conditions: [
      { type: "Accepted", status: "True", reason: "Registered", message: `calls name ${id}` },
      {
        type: "Ready",
        status: isReady ? "True" : "False",
        reason: reason ?? phase,
        message: message ?? "",
      },
    ] satisfies ConditionNow[],
  };
}
