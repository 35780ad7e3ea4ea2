import { AppError } from "@heddle/base/errors";
import type { z } from "zod";

/** One fault of a request: where (as `messages[0].content`), what kind, and in words. */
export interface Fault {
  readonly param: string;
  readonly code: "invalid_value" | "missing_required_parameter";
  readonly message: string;
}

/**
 * The value as the schema gives it. Throws an AppError for the first fault, with its JSON path in
 * `param` and all faults as the error's `cause` (a RequestFaults).
 */
export function validate<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const faults = result.error.issues.slice(0, MAX_FAULTS).map((issue) => faultOf(issue, value));
  const first = faults[0];
  if (!first) throw new Error("a failed validation has at least one issue");
  throw new AppError(first.code, first.message, {
    param: first.param || undefined,
    cause: new RequestFaults(faults),
  });
}

const MAX_FAULTS = 20;

/** All faults found in one request, as the cause of the AppError that reports the first. */
export class RequestFaults extends Error {
  override readonly name = "RequestFaults";
  readonly faults: readonly Fault[];

  constructor(faults: readonly Fault[]) {
    super(`${faults.length} faults`);
    this.faults = faults;
  }
}

type Issue = z.core.$ZodIssue;

function faultOf(issue: Issue, value: unknown): Fault {
  const { path, message } = deepest(issue);
  const param = pathText(path);
  if (path.length > 0 && valueAt(value, path) === undefined) {
    const text = `Missing required parameter: '${param}'.`;
    return { param, code: "missing_required_parameter", message: text };
  }
  const where = param === "" ? "The request body is invalid" : `Invalid value for '${param}'`;
  return { param, code: "invalid_value", message: `${where}: ${message}.` };
}

/** In a union, the branch that got furthest is meant; where none got on, all are told. */
function deepest(issue: Issue): { path: PropertyKey[]; message: string } {
  let found = { path: issue.path, message: issue.message.replace(/\.$/, "") };
  if (issue.code !== "invalid_union") return found;
  for (const branch of issue.errors) {
    for (const inner of branch) {
      const candidate = deepest(inner);
      const path = [...issue.path, ...candidate.path];
      if (path.length > found.path.length) found = { path, message: candidate.message };
    }
  }
  if (found.path.length > issue.path.length) return found;
  return { path: found.path, message: alternatives(issue.errors.flat()) ?? found.message };
}

/** What a union's branches want; a branch whose type fits but not its bounds was meant alone. */
function alternatives(issues: readonly Issue[]): string | undefined {
  const wanted = new Set<string>();
  for (const issue of issues) {
    const { message } = deepest(issue);
    const type = /^Invalid input: expected (.*?)(, received .*)?$/.exec(message)?.[1];
    if (type === undefined) return message;
    wanted.add(type);
  }
  return wanted.size === 0 ? undefined : `expected ${[...wanted].join(" or ")}`;
}

function pathText(path: readonly PropertyKey[]): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else text += text === "" ? String(step) : `.${String(step)}`;
  }
  return text;
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let at: unknown = value;
  for (const step of path) {
    if (typeof at !== "object" || at === null) return undefined;
    at = (at as Record<PropertyKey, unknown>)[step];
  }
  return at;
}
