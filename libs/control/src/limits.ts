import {
  BUDGET_PERIODS,
  type Limits,
  MAX_BUDGET,
  MAX_PRICE,
  NANOS,
  NANOS_PER_MILLION,
  type Prices,
  subjectId,
} from "@heddle/contracts/limits";
import { LIMITS_SUBJECTS } from "./cluster-version.ts";
import { ACCEPTED, type CatalogCommand, type ControlReply, refuse } from "./command.ts";
import type { ControlState } from "./state.ts";

/** Projects and models with limits. */
const MAX_RECORDS = 20_000;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$/;

export function setLimits(
  state: Pick<ControlState, "keys" | "limits">,
  command: Extract<CatalogCommand, { type: "limits.set" }>,
): ControlReply {
  const { kind, name, project, record } = command;
  const fault = limitsFault(record.limits, LIMITS_SUBJECTS) ?? pricesFault(record.prices);
  if (fault) return refuse("invalid_value", fault);
  if (record.prices && kind !== "model") {
    return refuse("invalid_value", `a ${kind} has no prices, models have`, "prices");
  }
  if (project !== undefined && kind !== "model") {
    return refuse("invalid_value", `a ${kind} is of no project, models are`, "project");
  }
  if (kind === "key") {
    const key = state.keys.get(name);
    if (!key) return refuse("not_found", `no key has the id ${name}`);
    state.keys.set(name, { ...key, limits: record.limits });
    return ACCEPTED;
  }
  if (!NAME.test(name)) return refuse("invalid_value", `no ${kind} can have that name`, "name");
  const at = subjectId(command);
  if (!record.prices && Object.values(record.limits).every((each) => each === undefined)) {
    state.limits.delete(at);
    return ACCEPTED;
  }
  if (!state.limits.has(at) && state.limits.size >= MAX_RECORDS) {
    return refuse("conflict", `${MAX_RECORDS} projects and models have limits already`);
  }
  state.limits.set(at, record);
  return ACCEPTED;
}

/** Why these cannot be limits; before LIMITS_SUBJECTS none was a budget. */
export function limitsFault(limits: Limits, version: number): string | undefined {
  for (const [name, value] of Object.entries(limits)) {
    if (name === "budget" && version >= LIMITS_SUBJECTS) continue;
    if (value !== undefined && !(Number.isSafeInteger(value) && (value as number) > 0)) {
      return `the limit ${name} must be a positive integer, got ${value}`;
    }
  }
  const { budget } = limits;
  if (!budget || version < LIMITS_SUBJECTS) return undefined;
  if (!BUDGET_PERIODS.includes(budget.period)) return `a budget has no period ${budget.period}`;
  return isAmount(budget.amount, MAX_BUDGET * NANOS)
    ? undefined
    : `a budget is at most ${MAX_BUDGET}, got ${budget.amount / NANOS}`;
}

function pricesFault(prices: Prices | undefined): string | undefined {
  if (!prices) return undefined;
  const most = MAX_PRICE * NANOS_PER_MILLION;
  return isAmount(prices.input, most) && isAmount(prices.output, most)
    ? undefined
    : `a price for a million tokens is at most ${MAX_PRICE}`;
}

function isAmount(value: number, most: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= most;
}
