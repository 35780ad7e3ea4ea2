import { type GangRequest, gangFits } from "./gang.ts";
import type { Ledger } from "./ledger.ts";
import type { TaskRequest } from "./model.ts";
import type { ShapeTable } from "./shape.ts";
import { SCALARS } from "./units.ts";

/** One change of a request after which the gang would fit on what is free now. */
export interface RequestChange {
  /** The field, as the API names it; `all_amounts` scales every amount of a task alike. */
  readonly field: string;
  readonly from: string | number | boolean;
  readonly to: string | number | boolean;
  /** How much of the field is given up, in 0..1; a dropped constraint counts as a half. */
  readonly cost: number;
}

/** What giving up a constraint weighs beside giving up a share of an amount. */
const DROPPED_CONSTRAINT_COST = 0.5;

/** Steps in which all amounts shrink together. */
const SCALE_STEPS = 100;

type Variant = Pick<GangRequest, "tasks" | "sameRack"> & { readonly request: TaskRequest };

/**
 * The changes of a single field that would let the gang start, the smallest first; where no single
 * one does, the least shrinking of all amounts together; empty where nothing helps or it fits.
 */
export function smallestChanges(
  ledger: Ledger,
  shapes: ShapeTable,
  gang: GangRequest,
): RequestChange[] {
  if (gangFits(ledger, gang)) return [];
  const variant: Variant = { ...gang, request: gang.shape.request };
  const fits = ({ request, tasks, sameRack }: Variant): boolean =>
    gangFits(ledger, { ...gang, shape: shapes.of(request), tasks, sameRack });
  const changes = [...amountChanges(variant, fits), ...constraintChanges(variant, fits)];
  if (changes.length === 0) changes.push(...scaledDown(variant, fits));
  return changes.sort((a, b) => a.cost - b.cost || (a.field < b.field ? -1 : 1));
}

type Fits = (variant: Variant) => boolean;

/** For each amount, the largest smaller value that fits, the others as they are. */
function amountChanges(variant: Variant, fits: Fits): RequestChange[] {
  const { request, tasks } = variant;
  const amounts: (readonly [string, number, number, (value: number) => Variant])[] = [
    ["tasks", tasks, 1, (value) => ({ ...variant, tasks: value })],
  ];
  if (request.gpus > 1) {
    amounts.push(["gpu_count", request.gpus, 1, (gpus) => withRequest(variant, { gpus })]);
  }
  if (request.gpus === 1) {
    const smaller = (gpuMilli: number): Variant => withRequest(variant, { gpuMilli });
    amounts.push(["gpu_milli", request.gpuMilli, 1, smaller]);
  }
  for (const name of SCALARS) {
    const scalars = (value: number) => ({ ...request.scalars, [name]: value });
    amounts.push([
      name,
      request.scalars[name],
      0,
      (value) => withRequest(variant, { scalars: scalars(value) }),
    ]);
  }
  return amounts.flatMap(([field, from, least, change]) => {
    const to = largestThatFits(least, from, (value) => fits(change(value)));
    return to === undefined ? [] : [{ field, from, to, cost: (from - to) / from }];
  });
}

/** Less is never harder to place, hence the binary search; undefined where even `least` is not. */
function largestThatFits(
  least: number,
  asked: number,
  fits: (value: number) => boolean,
): number | undefined {
  if (asked <= least || !fits(least)) return undefined;
  let low = least;
  let high = Math.ceil(asked) - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

function constraintChanges(variant: Variant, fits: Fits): RequestChange[] {
  const { request, sameRack } = variant;
  const drops: (readonly [
    string,
    string | number | boolean,
    string | number | boolean,
    Variant,
  ])[] = [
    ["same_rack", sameRack, false, { ...variant, sameRack: false }],
    ["infiniband_required", request.infiniband, false, withRequest(variant, { infiniband: false })],
    ["gpu_type", request.gpuTypes.join("|"), "", withRequest(variant, { gpuTypes: [] })],
    ["gpu_memory_gb", request.gpuMemoryGb, 0, withRequest(variant, { gpuMemoryGb: 0 })],
    ["node_affinity", request.nodeAffinity.length, 0, withRequest(variant, { nodeAffinity: [] })],
    [
      "node_anti_affinity",
      request.nodeAntiAffinity.length,
      0,
      withRequest(variant, { nodeAntiAffinity: [] }),
    ],
  ];
  return drops
    .filter(([, from, to, changed]) => from !== to && fits(changed))
    .map(([field, from, to]) => ({ field, from, to, cost: DROPPED_CONSTRAINT_COST }));
}

function scaledDown(variant: Variant, fits: Fits): RequestChange[] {
  const { request } = variant;
  const scaled = (percent: number): Variant => {
    const part = (amount: number): number => Math.floor((amount * percent) / SCALE_STEPS);
    const scalars = { ...request.scalars };
    for (const name of SCALARS) scalars[name] = part(scalars[name]);
    const gpus = request.gpus > 1 ? Math.max(1, part(request.gpus)) : request.gpus;
    const gpuMilli = request.gpus === 1 ? Math.max(1, part(request.gpuMilli)) : request.gpuMilli;
    return withRequest(variant, { scalars, gpus, gpuMilli });
  };
  const to = largestThatFits(1, SCALE_STEPS, (percent) => fits(scaled(percent)));
  if (to === undefined) return [];
  const cost = 1 - to / SCALE_STEPS;
  return [{ field: "all_amounts", from: "100 %", to: `${to} %`, cost }];
}

function withRequest(variant: Variant, change: Partial<TaskRequest>): Variant {
  return { ...variant, request: { ...variant.request, ...change } };
}
