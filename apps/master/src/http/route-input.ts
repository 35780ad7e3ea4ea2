import { AppError } from "@heddle/base/errors";
import type { ApiOperation } from "@heddle/contracts/api/operation";
import { nearestField } from "@heddle/contracts/nearest-field";
import { RequestFaults, type ValidationFault, validate } from "@heddle/contracts/validation";
import type { FastifyRequest } from "fastify";
import type { z } from "zod";
import { parseJsonBody } from "./json-body.ts";

/**
 * The query as the operation's schema parses it. Unknown parameters are refused by the
 * orchestration API, and ignored by the others.
 */
export function parsedQuery(
  { query }: ApiOperation,
  given: ParameterValues,
  isStrict: boolean,
): ParameterValues {
  if (isStrict) refuseUnknown(query, given);
  return query ? validate(query, given) : given;
}

/** Query parameters by name. */
export type ParameterValues = Readonly<Record<string, unknown>>;

function refuseUnknown(query: ApiOperation["query"], given: ParameterValues): void {
  const known = Object.keys(query?.shape ?? {});
  const unknown = Object.keys(given).filter((name) => !known.includes(name));
  const list = known.map((name) => `'${name}'`).join(", ");
  const taken = known.length === 0 ? "this route takes none" : `only ${list}`;
  refuse(unknown, (name) => {
    const meant = query && nearestField(query, [], name);
    const advice = meant === undefined ? "" : ` Did you mean '${meant}'?`;
    return `There is no parameter '${name}' here, ${taken}.${advice}`;
  });
}

/** The body of a request as the operation's schema parses it. */
export function bodyOf<Body extends z.ZodObject>(
  operation: { readonly body: Body; readonly isBodyOptional?: boolean },
  request: FastifyRequest,
): z.output<Body> {
  const bytes = request.body as Buffer | undefined;
  const isEmpty = bytes === undefined || bytes.length === 0;
  const given = isEmpty && operation.isBodyOptional ? {} : parseJsonBody(bytes ?? Buffer.alloc(0));
  return validate(operation.body, given);
}

/** Refuses the fields of a body that the route does not read; an empty body is accepted. */
export function checkBody({ body }: FastifyRequest, operation: ApiOperation | undefined): void {
  if (operation?.body || !(body instanceof Buffer) || body.length === 0) return;
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
