import { AppError } from "@heddle/base/errors";
import { RequestFaults, type ValidationFault } from "@heddle/contracts/validation";
import type { FastifyRequest } from "fastify";
import { parseJsonBody } from "./json-body.ts";

/** The input of an orchestration route beside its path; any other input is refused. */
export interface RouteInput {
  /** The names of its query parameters; `checked` if the route refuses unknown ones itself. */
  readonly query?: readonly string[] | "checked" | undefined;
  /** Whether it reads a body. */
  readonly body?: boolean | undefined;
}

/** Throws if there are query parameters that the route does not know; names all of them. */
export function checkQuery(request: FastifyRequest, { query = [] }: RouteInput): void {
  if (query === "checked") return;
  const unknown = Object.keys(request.query as object).filter((name) => !query.includes(name));
  const list = query.map((name) => `'${name}'`).join(", ");
  const known = query.length === 0 ? "this route takes none" : `only ${list}`;
  refuse(unknown, (name) => `There is no parameter '${name}' here, ${known}.`);
}

/** Refuses the fields of a body that the route does not read; an empty body is accepted. */
export function checkBody({ body }: FastifyRequest, input: RouteInput): void {
  if (input.body || !(body instanceof Buffer) || body.length === 0) return;
  const fields = Object.keys(parseJsonBody(body));
  refuse(fields, (name) => `There is no field '${name}': this route takes no body.`);
}

/** Maximum faults listed for one request. */
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
