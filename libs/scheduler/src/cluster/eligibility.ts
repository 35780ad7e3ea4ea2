import { runToEnd, type Steps } from "@heddle/base/async/steps";
import type { LabelSelector, NodeSnapshot, TaskRequest } from "../model.ts";
import type { Roster } from "./roster.ts";

/** The static filters in the order of evaluation; a node counts at the first that rejects it. */
export const NODE_FILTERS = [
  "lost",
  "state",
  "taint",
  "executor",
  "algorithm",
  "profile",
  "feature",
  "gpu",
  "gpu_index",
  "gpu_type",
  "gpu_memory",
  "affinity",
  "anti_affinity",
  "infiniband",
  "plugin",
] as const;

/** Nodes that one step evaluates; each costs up to 10 us for the longest lists of a request. */
const NODES_PER_STEP = 512;

export type NodeFilter = (typeof NODE_FILTERS)[number];

/** The first static filter that rejects the node, or undefined if it is eligible. */
export function rejectedBy(request: TaskRequest, node: NodeSnapshot): NodeFilter | undefined {
  return stateFilter(node) ?? rejectedWhenReady(request, node);
}

function stateFilter({ state }: NodeSnapshot): NodeFilter | undefined {
  if (state === "ready") return undefined;
  return state === "lost" ? "lost" : "state";
}

/** The same for a node as if it were ready, whatever its state is now. */
function rejectedWhenReady(request: TaskRequest, node: NodeSnapshot): NodeFilter | undefined {
  const { tolerations, affinity, antiAffinity, excluded } = compiled(request);
  if (!node.taints.every((taint) => tolerations.has(taint))) return "taint";
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
  if (!affinity.every((selector) => matches(selector, node))) return "affinity";
  if (antiAffinity.some((selector) => matches(selector, node))) return "anti_affinity";
  if (request.infiniband && node.fabric === "") return "infiniband";
  if (excluded.has(node.id)) return "plugin";
  return undefined;
}

/** A request's lists as sets: a node costs one look-up a selector, whatever the list's length. */
interface Compiled {
  readonly tolerations: ReadonlySet<string>;
  readonly affinity: readonly CompiledSelector[];
  readonly antiAffinity: readonly CompiledSelector[];
  readonly excluded: ReadonlySet<string>;
}

interface CompiledSelector extends Omit<LabelSelector, "values"> {
  readonly values: ReadonlySet<string>;
}

const compiledRequests = new WeakMap<TaskRequest, Compiled>();

function compiled(request: TaskRequest): Compiled {
  const known = compiledRequests.get(request);
  if (known) return known;
  const compile = ({ key, operator, values }: LabelSelector): CompiledSelector => {
    return { key, operator, values: new Set(values) };
  };
  const made = {
    tolerations: new Set(request.tolerations),
    affinity: request.nodeAffinity.map(compile),
    antiAffinity: request.nodeAntiAffinity.map(compile),
    excluded: new Set(request.excludedNodes),
  };
  compiledRequests.set(request, made);
  return made;
}

function matches({ key, operator, values }: CompiledSelector, { labels }: NodeSnapshot): boolean {
  const value = labels[key];
  switch (operator) {
    case "in":
      return value !== undefined && values.has(value);
    case "not_in":
      return value === undefined || !values.has(value);
    case "exists":
      return value !== undefined;
    case "not_exists":
      return value === undefined;
    default:
      return operator satisfies never;
  }
}

/** What the filters may read of a request: all that does not depend on other tasks or scores. */
type FilteredField = Exclude<
  keyof TaskRequest,
  "gpuMilli" | "scalars" | "nodeRanks" | "onePerNode"
>;

/** The nodes that pass, for requests with the same filters. */
export interface StaticFilter {
  /** One of those requests. */
  readonly request: TaskRequest;
  /** 1 for each eligible node, by the node's position; at least as long as the roster. */
  eligible: Uint8Array;
  /**
   * Indexed by the node's position: the filter that rejects it if it is ready, by its index plus one; 0 for
   * none.
   */
  rejecting: Uint8Array;
}

/** The nodes that pass for each request, computed once for requests with the same filters. */
export class Eligibility {
  readonly #roster: Roster;
  readonly #byKey = new Map<string, StaticFilter>();
  readonly #listIds = new WeakMap<readonly unknown[], number>();
  readonly #idsByText = new Map<string, number>();

  constructor(roster: Roster) {
    this.#roster = roster;
  }

  /** Filters known so far. */
  get size(): number {
    return this.#byKey.size;
  }

  of(request: TaskRequest): StaticFilter {
    return runToEnd(this.ofInSteps(request));
  }

  /** Evaluates every node if no earlier request had the same filters. */
  *ofInSteps(request: TaskRequest): Steps<StaticFilter> {
    const key = this.keyOf(request);
    const known = this.#byKey.get(key);
    if (known) return known;
    const { slots } = this.#roster;
    const rejecting = new Uint8Array(slots.length);
    const eligible = new Uint8Array(slots.length);
    for (const [position, node] of slots.entries()) {
      if (position % NODES_PER_STEP === NODES_PER_STEP - 1) yield;
      rejecting[position] = codeOf(rejectedWhenReady(request, node));
      eligible[position] = isEligible(node, rejecting[position]);
    }
    const filter = { request, eligible, rejecting };
    this.#byKey.set(key, filter);
    return filter;
  }

  /** Updates the filters for an added or changed node. */
  follow(position: number): void {
    const node = this.#roster.slots[position]!;
    for (const filter of this.#byKey.values()) {
      if (position >= filter.eligible.length) {
        filter.eligible = longer(filter.eligible, position);
        filter.rejecting = longer(filter.rejecting, position);
      }
      const code = codeOf(rejectedWhenReady(filter.request, node));
      filter.rejecting[position] = code;
      filter.eligible[position] = isEligible(node, code);
    }
  }

  /** A short id for a list; the tried variants of a spec share theirs. */
  #listId(list: readonly (LabelSelector | string)[]): number {
    if (list.length === 0) return 0;
    const known = this.#listIds.get(list);
    if (known !== undefined) return known;
    const text = JSON.stringify(list, ["key", "operator", "values"]);
    const id = this.#idsByText.get(text) ?? this.#idsByText.size + 1;
    this.#idsByText.set(text, id);
    this.#listIds.set(list, id);
    return id;
  }

  /** Requests with the same key pass the same nodes. */
  keyOf(request: TaskRequest): string {
    const key: Record<FilteredField, unknown> = {
      gpus: request.gpus > 0,
      gpuIndex: request.gpuIndex ?? null,
      gpuTypes: request.gpuTypes,
      gpuMemoryGb: request.gpuMemoryGb,
      nodeAffinity: this.#listId(request.nodeAffinity),
      nodeAntiAffinity: this.#listId(request.nodeAntiAffinity),
      infiniband: request.infiniband,
      tolerations: this.#listId(request.tolerations),
      excludedNodes: this.#listId(request.excludedNodes ?? []),
      offers: (request.offers ?? []).map(({ labelPrefix, name }) => labelPrefix + name),
    };
    return JSON.stringify(Object.values(key));
  }
}

function codeOf(filter: NodeFilter | undefined): number {
  return filter === undefined ? 0 : NODE_FILTERS.indexOf(filter) + 1;
}

function isEligible(node: NodeSnapshot, code: number): 0 | 1 {
  return stateFilter(node) === undefined && code === 0 ? 1 : 0;
}

/** The number of nodes that each filter rejects; a node counts at its first. */
export function countRejected(
  { slots, vacant }: Pick<Roster, "slots" | "vacant">,
  { rejecting }: Pick<StaticFilter, "rejecting">,
): ReadonlyMap<NodeFilter, number> {
  const counts = new Map<NodeFilter, number>();
  for (const [position, node] of slots.entries()) {
    if (vacant(position)) continue;
    const filter = stateFilter(node) ?? NODE_FILTERS[rejecting[position]! - 1];
    if (filter) counts.set(filter, (counts.get(filter) ?? 0) + 1);
  }
  return counts;
}

/** The number of nodes in these states that would be eligible if they were ready. */
export function countAway(
  { slots, vacant }: Pick<Roster, "slots" | "vacant">,
  { rejecting }: Pick<StaticFilter, "rejecting">,
  states: readonly NodeSnapshot["state"][],
): number {
  let away = 0;
  for (const [position, { state }] of slots.entries()) {
    if (!vacant(position) && states.includes(state) && rejecting[position] === 0) away++;
  }
  return away;
}

/** A copy with room for the position and some more. */
function longer(list: Uint8Array, position: number): Uint8Array {
  const copy = new Uint8Array(Math.ceil((position + 1) * 1.125));
  copy.set(list);
  return copy;
}
