import { runToEnd, type Steps } from "@heddle/base/async/steps";
import { MAX_NODE_RANK, type TaskRequest } from "../model.ts";
import { Eligibility, type StaticFilter } from "./eligibility.ts";
import type { Roster } from "./roster.ts";
import { SCALARS, WHOLE_DEVICE_MILLI } from "./units.ts";

/** A task request compiled for the inner loops; equal requests share one shape. */
export interface RequestShape {
  /** Position in the table: the index of per-shape caches. */
  readonly id: number;
  readonly request: TaskRequest;
  /** Devices per task; 0 for none. */
  readonly devices: number;
  /** Thousandths per device; 0 where `devices` is 0. */
  readonly milli: number;
  /** The index of the one required device; -1 if any is accepted. */
  readonly onlyDevice: number;
  /** Whether a gang has at most one task on a node. */
  readonly onePerNode: boolean;
  /** Indexed by the ledger's columns. */
  readonly scalars: Float64Array;
  /** 1 for each node that passes the static filters, by the node's position. */
  readonly eligible: Uint8Array;
  /** See StaticFilter. */
  readonly rejecting: Uint8Array;
  /** Keyed by the node's id; undefined where all nodes have the same. */
  readonly ranks: ReadonlyMap<string, number> | undefined;
}

/** Shapes, beyond one a job, and filters that a table may have before a rebuild. */
const MAX_SHAPES = 20_000;
const MIN_FILTERS = 256;
const FILTERS_PER_JOB = 4;

/** Interns requests, and tracks their eligible nodes. */
export class ShapeTable {
  readonly #eligibility: Eligibility;
  readonly #byKey = new Map<string, RequestShape>();
  readonly #byRequest = new WeakMap<TaskRequest, RequestShape>();

  constructor(roster: Roster) {
    this.#eligibility = new Eligibility(roster);
  }

  /** Updates the filters for an added or changed node. */
  follow(position: number): void {
    this.#eligibility.follow(position);
  }

  /**
   * Whether most shapes are of jobs that have ended, so that a new table is worth its cost. The
   * table is not cleared: shapes in use follow the nodes through it.
   */
  needsRebuild(jobs: number): boolean {
    const isGone = this.#eligibility.size > MIN_FILTERS + FILTERS_PER_JOB * jobs;
    return isGone || this.#byKey.size > MAX_SHAPES + jobs;
  }

  of(request: TaskRequest): RequestShape {
    return this.#byRequest.get(request) ?? runToEnd(this.ofInSteps(request));
  }

  /** The first shape with new filters evaluates every node. */
  *ofInSteps(request: TaskRequest): Steps<RequestShape> {
    const known = this.#byRequest.get(request);
    if (known) return known;
    const filter = yield* this.#eligibility.ofInSteps(request);
    const key = shapeKey(request, this.#eligibility.keyOf(request));
    let shape = this.#byKey.get(key);
    if (!shape) {
      shape = compile(request, this.#byKey.size, filter);
      this.#byKey.set(key, shape);
    }
    this.#byRequest.set(request, shape);
    return shape;
  }
}

function compile(request: TaskRequest, id: number, filter: StaticFilter): RequestShape {
  const { gpus, gpuMilli, gpuIndex } = request;
  if (gpuIndex !== undefined && (gpus !== 1 || gpuMilli !== WHOLE_DEVICE_MILLI)) {
    throw new RangeError(`a named device is one whole: got ${gpus} devices of ${gpuMilli} milli`);
  }
  if (request.onePerNode && gpus === 0) {
    throw new RangeError("tasks without GPUs may share nodes");
  }
  const wellFormed =
    gpus === 0 ||
    (gpuMilli >= 1 && gpuMilli <= WHOLE_DEVICE_MILLI && (gpus === 1 || gpuMilli === 1000));
  if (!wellFormed) {
    throw new RangeError(`a share is of one device: got ${gpus} devices of ${gpuMilli} milli`);
  }
  const odd = SCALARS.find(
    (name) => !(Number.isInteger(request.scalars[name]) && request.scalars[name] >= 0),
  );
  if (odd) throw new RangeError(`${odd} must be an integer >= 0, got ${request.scalars[odd]}`);
  return {
    id,
    request,
    devices: gpus,
    milli: gpus > 0 ? gpuMilli : 0,
    onlyDevice: gpuIndex ?? -1,
    onePerNode: request.onePerNode ?? false,
    scalars: Float64Array.from(SCALARS, (name) => request.scalars[name]),
    ranks: ranksOf(request),
    get eligible() {
      return filter.eligible;
    },
    get rejecting() {
      return filter.rejecting;
    },
  };
}

function ranksOf({ nodeRanks = [] }: TaskRequest): RequestShape["ranks"] {
  if (nodeRanks.length === 0) return undefined;
  const odd = nodeRanks.find(
    ({ rank }) => !(Number.isInteger(rank) && rank >= 0 && rank <= MAX_NODE_RANK),
  );
  if (odd)
    throw new RangeError(`a rank is a whole number from 0 to ${MAX_NODE_RANK}, got ${odd.rank}`);
  return new Map(nodeRanks.map(({ nodeId, rank }) => [nodeId, rank]));
}

function shapeKey(request: TaskRequest, filterKey: string): string {
  const { gpus, gpuMilli, scalars, nodeRanks = [], onePerNode = false } = request;
  const amounts = SCALARS.map((name) => scalars[name]).join(" ");
  const ranks = nodeRanks.map(({ nodeId, rank }) => `${nodeId}=${rank}`).join();
  return `${gpus} ${gpus > 0 ? gpuMilli : 0} ${amounts} ${filterKey} ${ranks} ${onePerNode}`;
}
