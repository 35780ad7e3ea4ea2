import type { LabelSelector, NodeSnapshot, TaskRequest } from "./model.ts";

/** The static filters in the order they are tried; a node is charged to the first that rejects it. */
export const NODE_FILTERS = [
  "lost",
  "state",
  "taint",
  "executor",
  "algorithm",
  "gpu",
  "gpu_index",
  "gpu_type",
  "gpu_memory",
  "affinity",
  "anti_affinity",
  "infiniband",
] as const;

export type NodeFilter = (typeof NODE_FILTERS)[number];

/** The first static filter that rejects the node, or undefined where it is eligible. */
export function rejectedBy(request: TaskRequest, node: NodeSnapshot): NodeFilter | undefined {
  if (node.state === "lost") return "lost";
  if (node.state !== "ready") return "state";
  if (!node.taints.every((taint) => request.tolerations.includes(taint))) return "taint";
  for (const { kind, name, labelPrefix } of request.offers ?? []) {
    if (node.labels[labelPrefix + name] === undefined) return kind;
  }
  if (request.gpus > 0) {
    if (node.devices.length === 0) return "gpu";
    const { gpuTypes, gpuIndex = 0 } = request;
    if (gpuIndex >= node.devices.length) return "gpu_index";
    if (gpuTypes.length > 0 && !gpuTypes.includes(node.gpuType)) return "gpu_type";
    if (node.gpuMemoryGb < request.gpuMemoryGb) return "gpu_memory";
  }
  if (!request.nodeAffinity.every((selector) => matches(selector, node))) return "affinity";
  if (request.nodeAntiAffinity.some((selector) => matches(selector, node))) return "anti_affinity";
  if (request.infiniband && node.fabric === "") return "infiniband";
  return undefined;
}

function matches({ key, operator, values }: LabelSelector, { labels }: NodeSnapshot): boolean {
  const value = labels[key];
  switch (operator) {
    case "in":
      return value !== undefined && values.includes(value);
    case "not_in":
      return value === undefined || !values.includes(value);
    case "exists":
      return value !== undefined;
    case "not_exists":
      return value === undefined;
    default:
      return operator satisfies never;
  }
}

/** The nodes that pass for each request, computed once for requests that filter alike. */
export class Eligibility {
  readonly #nodes: readonly NodeSnapshot[];
  readonly #byKey = new Map<string, Uint8Array>();

  constructor(nodes: readonly NodeSnapshot[]) {
    this.#nodes = nodes;
  }

  /** 1 for each eligible node, by the node's position. */
  of(request: TaskRequest): Uint8Array {
    const key = this.keyOf(request);
    let eligible = this.#byKey.get(key);
    if (!eligible) {
      eligible = Uint8Array.from(this.#nodes, (node) => (rejectedBy(request, node) ? 0 : 1));
      this.#byKey.set(key, eligible);
    }
    return eligible;
  }

  /** Requests with the same key pass the same nodes. */
  keyOf(request: TaskRequest): string {
    return JSON.stringify([
      request.gpus > 0,
      request.gpuIndex ?? null,
      request.gpuTypes,
      request.gpuMemoryGb,
      request.nodeAffinity.map(({ key, operator, values }) => [key, operator, values]),
      request.nodeAntiAffinity.map(({ key, operator, values }) => [key, operator, values]),
      request.infiniband,
      request.tolerations,
      (request.offers ?? []).map(({ labelPrefix, name }) => labelPrefix + name),
    ]);
  }
}
