import type { Permission } from "@heddle/contracts/api/permission";
import type { z } from "zod";

/** Who calls a route; absent for a public one. */
export interface RouteCaller {
  /** The id of the key, or of the user. */
  readonly id: string;
  readonly name: string;
  readonly project: string;
  readonly permissions: readonly string[];
}

export interface RouteRequest<Query = unknown, Body = unknown> {
  /** The parts in braces of the path. */
  readonly params: Readonly<Record<string, string>>;
  /** As the route's schema parses it; without one it is empty. */
  readonly query: Query;
  readonly body: Body;
  readonly caller: RouteCaller | undefined;
  /** Aborts when the client hangs up or the time limit passes. */
  readonly signal: AbortSignal;
}

/** An event of a stream: its name in `events`, and its data. */
export interface RouteEvent {
  readonly event: string;
  readonly data: unknown;
}

/** A route below `/api/v1/custom/PLUGIN`. */
export interface PluginRoute<
  Query extends z.ZodObject = z.ZodObject,
  Body extends z.ZodObject = z.ZodObject,
> {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Begins with a slash; `{name}` is a parameter. */
  readonly path: string;
  /** A permission, `authenticated` for any valid key, or `public`; a route without one is refused. */
  readonly permission: Permission | "authenticated" | "public";
  /** One sentence, for the OpenAPI document. */
  readonly summary: string;
  readonly query?: Query;
  readonly body?: Body;
  /** The schema of the answer's JSON. Absent for a stream, and where nothing is answered. */
  readonly reply?: z.ZodType;
  /** Makes it a stream of server-sent events: the schema of each event by its name. */
  readonly events?: Readonly<Record<string, z.ZodType>>;
  /** Longest time to the answer, or between two events; 10,000 by default, 600,000 at most. */
  readonly timeoutMs?: number;
  /** The answer, or for a stream an async iterable of events. */
  handle(request: RouteRequest<z.output<Query>, z.output<Body>>): unknown;
}
