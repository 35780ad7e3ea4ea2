import { AppError } from "@heddle/base/errors";
import type { z } from "zod";
import { nearestField } from "./nearest-field.ts";

/** One fault of a request: its path (as `messages[0].content`), kind and message. */
export interface ValidationFault {
  readonly param: string;
  /** The path as steps, for names that contain dots; by default as in `param`. */
  readonly path?: readonly PropertyKey[] | undefined;
  readonly code: "invalid_value" | "missing_required_parameter";
  readonly message: string;
}

/**
 * Parses the value by the schema. Throws an AppError for the first fault, with its JSON path in
 * `param` and all faults as its `cause` (a RequestFaults).
 */
export function validate<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const { data, faults } = check(schema, value);
  const [first] = faults;
  if (!first) return data as z.output<S>;
  throw new AppError(first.code, first.message, {
    param: first.param || undefined,
    cause: new RequestFaults(faults),
  });
}

/** The parsed value, or its faults: at least one. */
export function check<S extends z.ZodType>(
  schema: S,
  value: unknown,
): { readonly data: z.output<S> | undefined; readonly faults: readonly ValidationFault[] } {
  const result = schema.safeParse(value);
  if (result.success) return { data: result.data, faults: [] };
  const faults: ValidationFault[] = [];
  for (const issue of relevantIssues(result.error.issues)) {
    faults.push(...faultsOf(issue, value, schema));
    if (faults.length >= MAX_FAULTS) break;
  }
  return { data: undefined, faults: faults.slice(0, MAX_FAULTS) };
}

const MAX_FAULTS = 20;

/** All faults found in one request, as the cause of the AppError that reports the first. */
export class RequestFaults extends Error {
  override readonly name = "RequestFaults";
  readonly faults: readonly ValidationFault[];

  constructor(faults: readonly ValidationFault[]) {
    super(`${faults.length} faults`);
    this.faults = faults;
  }
}

type Issue = z.core.$ZodIssue;

/**
 * Drops redundant issues. zod checks an array against a text's length bounds, although its type is
 * wrong. Of two violated bounds, as an integer's own and its field's, the wider one is dropped.
 */
function* relevantIssues(issues: readonly Issue[]): Generator<Issue> {
  for (const [i, issue] of issues.entries()) {
    const [before, after] = [issues[i - 1], issues[i + 1]].map((other) => {
      return other && isSamePath(other.path, issue.path) ? other : undefined;
    });
    const isBound = issue.code === "too_big" || issue.code === "too_small";
    if (isBound && before?.code === "invalid_type") continue;
    if (![before, after].some((other) => other && isNarrower(other, issue))) yield issue;
  }
}

function isNarrower(one: Issue, other: Issue): boolean {
  if (one.code === "too_big" && other.code === "too_big") return one.maximum < other.maximum;
  const areSmall = one.code === "too_small" && other.code === "too_small";
  return areSmall && one.minimum > other.minimum;
}

function isSamePath(path: readonly PropertyKey[], other: readonly PropertyKey[]): boolean {
  return path.length === other.length && path.every((step, i) => step === other[i]);
}

function faultsOf(issue: Issue, value: unknown, schema: z.ZodType): ValidationFault[] {
  if (issue.code !== "unrecognized_keys") return [faultOf(issue, value)];
  return issue.keys.slice(0, MAX_FAULTS).map((key) => {
    const path = [...issue.path, key];
    const param = pathText(path);
    const meant = nearestField(schema, issue.path, key);
    const advice = meant === undefined ? "" : ` Did you mean '${meant}'?`;
    return {
      param,
      path,
      code: "invalid_value",
      message: `There is no field '${param}'.${advice}`,
    };
  });
}

function faultOf(issue: Issue, value: unknown): ValidationFault {
  const { path, message } = deepest(issue);
  const param = pathText(path);
  if (isMissing(value, path)) {
    const text = `Missing required parameter: '${param}'.`;
    return { param, path, code: "missing_required_parameter", message: text };
  }
  const where = param === "" ? "The request is invalid" : `Invalid value for '${param}'`;
  return { param, path, code: "invalid_value", message: `${where}: ${message}.` };
}

/** In a union, the branch with the deepest fault is meant; without one, all are reported. */
function deepest(issue: Issue): { path: PropertyKey[]; message: string } {
  // A record key's fault is nested; the path leads to the key.
  const { message } = issue.code === "invalid_key" ? (issue.issues[0] ?? issue) : issue;
  let found = { path: issue.path, message: inPlainWords(message.replace(/\.$/, "")) };
  if (issue.code !== "invalid_union") return found;
  for (const branch of issue.errors) {
    for (const inner of branch) {
      const candidate = deepest(inner);
      const path = [...issue.path, ...candidate.path];
      if (path.length > found.path.length) found = { path, message: candidate.message };
    }
  }
  if (found.path.length > issue.path.length) return found;
  const relevant = issue.errors.flatMap((errors) => [...relevantIssues(errors)]);
  return { path: found.path, message: alternatives(relevant) ?? found.message };
}

function inPlainWords(message: string): string {
  return message
    .replace("expected int, received number", "expected a whole number")
    .replace("expected record,", "expected object,")
    .replace("Invalid discriminator value. Expected", "expected one of");
}

/** The types of a union's branches; a branch whose type fits but not its bounds is meant alone. */
function alternatives(issues: readonly Issue[]): string | undefined {
  const expected = new Set<string>();
  for (const issue of issues) {
    const { message } = deepest(issue);
    const type = /^Invalid input: expected (.*?)(, received .*)?$/.exec(message)?.[1];
    if (type === undefined) return message;
    expected.add(type);
  }
  return expected.size === 0 ? undefined : `expected ${[...expected].join(" or ")}`;
}

function pathText(path: readonly PropertyKey[]): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else text += text === "" ? String(step) : `.${String(step)}`;
  }
  return text;
}

/** Whether the path leads to a missing member of an object or array. */
function isMissing(value: unknown, path: readonly PropertyKey[]): boolean {
  let at: unknown = value;
  for (const step of path) {
    if (at === undefined) return true;
    if (typeof at !== "object" || at === null) return false;
    at = (at as Record<PropertyKey, unknown>)[step];
  }
  return path.length > 0 && at === undefined;
}
