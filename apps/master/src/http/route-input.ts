import { AppError } from "@heddle/base/errors";
import { RequestFaults, type ValidationFault } from "@heddle/contracts/validation";
import type { FastifyRequest } from "fastify";
import { parseJsonBody } from "./json-body.ts";

/** What a route of the orchestration API takes beside its path; whatever else comes is refused. */
export interface RouteInput {
  /** The names of its query parameters; `checked` where the route refuses unknown ones itself. */
  readonly query?: readonly string[] | "checked" | undefined;
  /** Whether it reads a body. */
  readonly body?: boolean | undefined;
}

/** Refuses query parameters that the route does not know, all of them at once, by throwing. */
export function checkQuery(request: FastifyRequest, { query = [] }: RouteInput): void {
  if (query === "checked") return;
  const unknown = Object.keys(request.query as object).filter((name) => !query.includes(name));
  const list = query.map((name) => `'${name}'`).join(", ");
  const known = query.length === 0 ? "this route takes none" : `only ${list}`;
  refuse(unknown, (name) => `There is no parameter '${name}' here, ${known}.`);
}

/** Refuses the fields of a body that the route does not read; one without fields says nothing. */
export function checkBody({ body }: FastifyRequest, input: RouteInput): void {
  if (input.body || !(body instanceof Buffer) || body.length === 0) return;
  const fields = Object.keys(parseJsonBody(body));
  refuse(fields, (name) => `There is no field '${name}': this route takes no body.`);
}

/** Faults that are told of one request, at most. */
const MAX_FAULTS = 20;

function refuse(names: readonly string[], messageOf: (name: string) => string): void {
  const faults = names.slice(0, MAX_FAULTS).map((name): ValidationFault => {
    return { param: name, path: [name], code: "invalid_value", message: messageOf(name) };
  });
  const [first] = faults;
  if (!first) return;
  const { code, message, param } = first;
  throw new AppError(code, message, { param, cause: new RequestFaults(faults) });
}
