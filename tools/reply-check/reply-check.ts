import { readFileSync } from "node:fs";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

interface MediaType {
  readonly schema?: object;
  readonly "x-events"?: Readonly<Record<string, object>>;
}

interface Responses {
  readonly [status: string]: {
    readonly content?: Readonly<Record<string, MediaType>>;
    /** A reference to the errors' response, which has the name of their schema. */
    readonly $ref?: string;
  };
}

interface Document {
  readonly paths: Readonly<
    Record<string, Readonly<Record<string, { readonly responses: Responses }>>>
  >;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

/** Checks replies of a master against the OpenAPI document. */
export class ReplyCheck {
  readonly #document: Document;
  readonly #routes: readonly {
    readonly pattern: RegExp;
    readonly methods: Document["paths"][string];
  }[];
  readonly #ajv: Ajv2020;
  readonly #validators = new WeakMap<object, ValidateFunction>();

  constructor(path: URL) {
    const document = JSON.parse(readFileSync(path, "utf8")) as Document;
    this.#document = document;
    this.#routes = Object.entries(document.paths)
      .sort(([left], [right]) => parameters(left) - parameters(right))
      .map(([route, methods]) => ({ pattern: patternOf(route), methods }));
    this.#ajv = new Ajv2020({ strict: false, allErrors: false });
    addFormats.default(this.#ajv);
    this.#ajv.addSchema({ $id: "openapi", components: document.components });
  }

  /** The faults of a whole JSON body; undefined where the document does not know the path. */
  body(reply: CheckedReply, text: string): string | undefined {
    const { status, mediaType } = reply;
    const responses = this.#responsesOf(reply);
    if (status >= 400 && !responses?.[status]) {
      const isProblem = mediaType === "application/problem+json";
      const known = responses?.["default"]?.$ref?.split("/").at(-1);
      const name = known ?? (isProblem ? "Problem" : "ErrorResponse");
      return faultOf(reply, this.#errors(this.#document.components.schemas[name]!, text));
    }
    if (!responses) return undefined;
    const content = responses[status]?.content?.[mediaType];
    if (!content?.schema) return faultOf(reply, "the document has no such reply");
    return faultOf(reply, this.#errors(content.schema, text));
  }

  /** The faults of one event of a stream. */
  event(reply: CheckedReply, type: string, data: string): string | undefined {
    if (data === "" || data === "[DONE]") return undefined;
    const responses = this.#responsesOf(reply);
    if (!responses) return undefined;
    const events = responses[reply.status]?.content?.["text/event-stream"]?.["x-events"];
    const schema = events?.[type];
    if (!schema) return faultOf(reply, `the document has no event \`${type}\` of it`);
    return faultOf(reply, this.#errors(schema, data));
  }

  #responsesOf({ method, path }: CheckedReply): Responses | undefined {
    const route = this.#routes.find(({ pattern }) => pattern.test(path));
    return route?.methods[method.toLowerCase()]?.responses;
  }

  #errors(schema: object, text: string): string | undefined {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return `no JSON: ${text.slice(0, 100)}`;
    }
    const validate = this.#validators.get(schema) ?? this.#compiled(schema);
    if (validate(value)) return undefined;
    const [first] = validate.errors ?? [];
    const { additionalProperty: extra } = (first?.params ?? {}) as { additionalProperty?: string };
    return `${first?.instancePath || "/"} ${first?.message}${extra ? `: ${extra}` : ""}`;
  }

  #compiled(schema: object): ValidateFunction {
    const text = JSON.stringify(schema).replaceAll('"#/components/', '"openapi#/components/');
    const validate = this.#ajv.compile(JSON.parse(text) as object);
    this.#validators.set(schema, validate);
    return validate;
  }
}

/** What identifies a reply. */
export interface CheckedReply {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly mediaType: string;
}

function faultOf({ method, path, status }: CheckedReply, fault: string | undefined) {
  return fault === undefined ? undefined : `${method} ${path} answered ${status}: ${fault}`;
}

function parameters(route: string): number {
  return route.split("{").length;
}

function patternOf(route: string): RegExp {
  const escaped = route
    .replaceAll(".", "\\.")
    .replace(/\{path\}$/, ".+")
    .replace(/\{\w+\}/g, "[^/]+");
  return new RegExp(`^${escaped}/?$`);
}
