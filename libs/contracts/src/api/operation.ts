import type { z } from "zod";
import type { Permission } from "./permission.ts";

/**
 * An operation of the HTTP API as data. The master serves it, the client's types are derived from
 * it, and the OpenAPI document shows it.
 */
export interface ApiOperation {
  /** Unique; the client's method has the same name, except for those of OpenAI's contract. */
  readonly operationId: string;
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** With parameters in braces, as in OpenAPI; a last one with a star, `{path*}`, has slashes. */
  readonly path: string;
  /** A permission, `authenticated` for any valid key, or `public`. */
  readonly permission: Permission | "authenticated" | "public";
  /**
   * A public operation checks a key or token that comes with a call, and shows what that permits.
   */
  readonly readsCaller?: boolean;
  /** One sentence. */
  readonly summary: string;
  readonly query?: z.ZodObject;
  /** It answers from the replicated state: its query has `consistency`. */
  readonly readsState?: boolean;
  readonly headers?: readonly RequestHeader[];
  readonly body?: z.ZodObject;
  /** The fields of a `multipart/form-data` body, in place of JSON. */
  readonly form?: z.ZodObject;
  /** An empty body is `{}`. */
  readonly isBodyOptional?: boolean;
  /** The status of its usual reply; 200 by default. */
  readonly status?: number;
  /** What it answers, by status. Every other status has an error's body. */
  readonly replies: Readonly<Record<number, Content>>;
}

/** A header that operations read, beside `Authorization` and `Accept`. */
export type RequestHeader =
  | "Idempotency-Key"
  | "If-Match"
  | "If-None-Match"
  | "If-Range"
  | "Last-Event-ID"
  | "Prefer"
  | "Range"
  | "X-Heddle-Priority";

/** The formats of a reply; none for an empty body. */
export interface Content {
  readonly "application/json"?: z.ZodType;
  /** The events by name; those without a name are `message`. */
  readonly "text/event-stream"?: Readonly<Record<string, z.ZodType>>;
  /** The schema of a line. */
  readonly "application/x-ndjson"?: z.ZodType;
  readonly "text/plain"?: string;
  readonly "application/octet-stream"?: string;
}

/** A reply of JSON. */
export function json<Schema extends z.ZodType>(schema: Schema) {
  return { "application/json": schema };
}

/** Read-only data. */
export type Immutable<T> = T extends readonly (infer Item)[]
  ? readonly Immutable<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: Immutable<T[Key]> }
    : T;

/** The data of a schema, as replies have it. */
export type DataOf<Schema extends z.ZodType> = Immutable<z.output<Schema>>;

type JsonOf<Reply> = Reply extends { readonly "application/json": infer Schema extends z.ZodType }
  ? DataOf<Schema>
  : never;

/** The JSON that an operation answers, of all its statuses. */
export type ReplyOf<O extends ApiOperation> = {
  [Status in keyof O["replies"]]: JsonOf<O["replies"][Status]>;
}[keyof O["replies"]];

/** The parsed query of an operation. */
export type QueryOf<O extends { readonly query: z.ZodObject }> = z.output<O["query"]>;
