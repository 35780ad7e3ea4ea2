import type { LabelSelector, NodeSnapshot, TaskRequest } from "./model.ts";
import type { Roster } from "./roster.ts";

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

/** The nodes that pass for requests that filter alike. */
export interface StaticFilter {
  /** One of those requests. */
  readonly request: TaskRequest;
  /** 1 for each eligible node, by the node's position; as long as the roster or longer. */
  eligible: Uint8Array;
}

/** The nodes that pass for each request, computed once for requests that filter alike. */
export class Eligibility {
  readonly #roster: Roster;
  readonly #byKey = new Map<string, StaticFilter>();

  constructor(roster: Roster) {
    this.#roster = roster;
  }

  of(request: TaskRequest): StaticFilter {
    const key = this.keyOf(request);
    let filter = this.#byKey.get(key);
    if (!filter) {
      const { slots } = this.#roster;
      const eligible = Uint8Array.from(slots, (node) => (rejectedBy(request, node) ? 0 : 1));
      filter = { request, eligible };
      this.#byKey.set(key, filter);
    }
    return filter;
  }

  /** The node at the position is new or has changed. */
  follow(position: number): void {
    const node = this.#roster.slots[position]!;
    for (const filter of this.#byKey.values()) {
      if (position >= filter.eligible.length) filter.eligible = longer(filter.eligible, position);
      filter.eligible[position] = rejectedBy(filter.request, node) ? 0 : 1;
    }
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

/** A copy with room for the position and some more. */
function longer(list: Uint8Array, position: number): Uint8Array {
  const copy = new Uint8Array(Math.ceil((position + 1) * 1.125));
  copy.set(list);
  return copy;
}
