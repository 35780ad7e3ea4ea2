import { z } from "zod";
import { errorResponse, problem } from "./api/errors.ts";
import { messagesError } from "./api/inference/messages.ts";
import type { ApiOperation, Content } from "./api/operation.ts";
import { errorFormatOf, OPERATIONS } from "./api/operations.ts";

type Json = Readonly<Record<string, unknown>>;

/** The OpenAPI document of the HTTP API. */
export interface OpenApiDocument {
  readonly openapi: string;
  readonly info: Json;
  readonly security: readonly Json[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Json>>>>;
  readonly components: Json & { readonly schemas: Readonly<Record<string, Json>> };
}

const REASONS: Readonly<Record<string, string>> = {
  200: "OK",
  202: "Accepted",
  206: "Partial Content",
  304: "Not Modified",
  416: "Range Not Satisfiable",
  503: "Service Unavailable",
};

/** The document in OpenAPI 3.1, generated from the operations. */
export function openApiDocument(version: string): OpenApiDocument {
  const operations = Object.entries(OPERATIONS).flatMap(([tag, ofTag]) =>
    Object.values(ofTag).map((operation) => ({ tag, operation })),
  );
  const all = operations.map(({ operation }) => operation);
  const inputs = jsonSchemas(Object.fromEntries(all.flatMap(inputsOf)), "input");
  const outputs = jsonSchemas(
    { ...Object.fromEntries(all.flatMap(outputsOf)), problem, errorResponse, messagesError },
    "output",
  );
  const schemas = { ...inputs.schemas, ...outputs.schemas };
  const paths: Record<string, Record<string, Json>> = {};
  for (const { tag, operation } of operations) {
    const method = operation.method.toLowerCase();
    const shown = { tags: [tag], ...operationObject(operation, schemas) };
    const path = operation.path.replace("*}", "}");
    paths[path] = { ...paths[path], [method]: shown };
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "Heddle",
      version,
      summary: "Serves and trains language models on a cluster of GPUs.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    security: [{ apiKey: [] }],
    paths,
    components: {
      schemas: merged(inputs.components, outputs.components),
      securitySchemes: { apiKey: { type: "http", scheme: "bearer" } },
      responses: {
        Problem: errorObject("application/problem+json", "Problem"),
        ErrorResponse: errorObject("application/json", "ErrorResponse"),
        MessagesErrorResponse: errorObject("application/json", "MessagesErrorResponse"),
      },
    },
  };
}

const ERROR_RESPONSES = {
  problem: "Problem",
  openai: "ErrorResponse",
  anthropic: "MessagesErrorResponse",
} as const;

function errorObject(mediaType: string, name: string): Json {
  const schema = { $ref: `#/components/schemas/${name}` };
  return { description: "An error.", content: { [mediaType]: { schema } } };
}

type NamedSchemas = readonly (readonly [name: string, schema: z.ZodType])[];

function inputsOf({ operationId, body = undefined, form = body }: ApiOperation): NamedSchemas {
  return form ? [[`${operationId} body`, form]] : [];
}

/** Query parameters too: their parsed values have the types that a reader expects. */
function outputsOf({ operationId, query, replies }: ApiOperation): NamedSchemas {
  const ofReplies = Object.entries(replies).flatMap(([status, content]) => {
    const prefix = `${operationId} ${status}`;
    const events = Object.entries(content["text/event-stream"] ?? {});
    return [
      ...events.map(([name, schema]) => [`${prefix} event ${name}`, schema] as const),
      ...(["application/json", "application/x-ndjson"] as const).flatMap((mediaType) => {
        const schema = content[mediaType];
        return schema ? [[`${prefix} ${mediaType}`, schema] as const] : [];
      }),
    ];
  });
  return query ? [...ofReplies, [`${operationId} query`, query]] : ofReplies;
}

/** The JSON Schemas by name, and the components that they refer to. */
function jsonSchemas(named: Readonly<Record<string, z.ZodType>>, io: "input" | "output") {
  const schema = z.toJSONSchema(z.object(named), {
    io,
    unrepresentable: "any",
    override: ({ jsonSchema }) => {
      // The pattern repeats what `format` says, at many times the length.
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
    },
  });
  const text = JSON.stringify(schema).replaceAll('"#/$defs/', '"#/components/schemas/');
  const { properties, $defs = {} } = JSON.parse(text) as {
    readonly properties: Readonly<Record<string, Json>>;
    readonly $defs?: Readonly<Record<string, Json>>;
  };
  return { schemas: properties, components: $defs };
}

function merged(
  inputs: Readonly<Record<string, Json>>,
  outputs: Readonly<Record<string, Json>>,
): Readonly<Record<string, Json>> {
  const shared = Object.keys(inputs).filter((name) => Object.hasOwn(outputs, name));
  const other = shared.find(
    (name) => JSON.stringify(inputs[name]) !== JSON.stringify(outputs[name]),
  );
  if (other !== undefined) {
    throw new Error(
      `the schema ${other} differs as input and as output: give each an id of its own`,
    );
  }
  return Object.fromEntries(Object.entries({ ...inputs, ...outputs }).sort(byName));
}

function byName([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number {
  return left < right ? -1 : 1;
}

function operationObject(
  operation: ApiOperation,
  schemas: Readonly<Record<string, Json | undefined>>,
): Json {
  const { operationId, permission, readsCaller, summary, path, headers = [], replies } = operation;
  const hasBody = operation.body !== undefined || operation.form !== undefined;
  const query = (schemas[`${operationId} query`]?.["properties"] ?? {}) as Record<string, Json>;
  const parameters = [
    ...[...path.matchAll(/\{(\w+)\*?\}/g)].map(([, name]) => {
      return { name, in: "path", required: true, schema: { type: "string" } };
    }),
    ...Object.entries(query).map(([name, { description, ...schema }]) => {
      return { name, in: "query", ...(description ? { description } : {}), schema };
    }),
    ...headers.map((name) => ({ name, in: "header", schema: { type: "string" } })),
  ];
  const statuses = Object.entries(replies).map(([status, content]) => [
    status,
    replyObject(`${operationId} ${status}`, REASONS[status] ?? status, content, schemas),
  ]);
  return {
    operationId,
    summary,
    "x-permission": permission,
    ...(permission === "public" ? { security: readsCaller ? [{}, { apiKey: [] }] : [] } : {}),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(hasBody ? { requestBody: bodyObject(operation, schemas) } : {}),
    responses: {
      ...Object.fromEntries(statuses),
      default: { $ref: `#/components/responses/${ERROR_RESPONSES[errorFormatOf(path)]}` },
    },
  };
}

function bodyObject(
  { operationId, form, isBodyOptional = false }: ApiOperation,
  schemas: Readonly<Record<string, Json | undefined>>,
): Json {
  const mediaType = form ? "multipart/form-data" : "application/json";
  const content = { [mediaType]: { schema: schemas[`${operationId} body`] } };
  return { required: !isBodyOptional, content };
}

/** A reply; the schemas of events and of lines are extensions, as OpenAPI 3.1 has none for them. */
function replyObject(
  prefix: string,
  description: string,
  content: Content,
  schemas: Readonly<Record<string, Json | undefined>>,
): Json {
  const entries = Object.entries(content).map(([mediaType, declared]) => {
    const schema = schemas[`${prefix} ${mediaType}`];
    if (mediaType === "application/json") return [mediaType, { schema }];
    if (typeof declared === "string") {
      return [mediaType, { schema: { type: "string", description: declared } }];
    }
    const text = { type: "string" };
    if (mediaType === "application/x-ndjson")
      return [mediaType, { schema: text, "x-line": schema }];
    const events = Object.keys(declared as object).map((name) => {
      return [name, schemas[`${prefix} event ${name}`]];
    });
    return [mediaType, { schema: text, "x-events": Object.fromEntries(events) }];
  });
  return entries.length === 0
    ? { description }
    : { description, content: Object.fromEntries(entries) };
}
