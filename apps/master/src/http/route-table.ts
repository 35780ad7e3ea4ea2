import type { Route } from "@heddle/contracts/api/cluster";
import type { ApiOperation } from "@heddle/contracts/api/operation";
import { RequestMethod, type Type } from "@nestjs/common";
import { operationOf, routePath } from "./serves.ts";

/** The injection token of the table of all routes. */
export const ROUTES = Symbol("routes");

/**
 * Every route of the controllers, read from their decorators, and of further operations, ordered by
 * path.
 */
export function listRoutes(
  controllers: readonly Type[],
  further: readonly ApiOperation[] = [],
): Route[] {
  return controllers
    .flatMap(routesOf)
    .concat(further.map(routeOf))
    .sort((a, b) => a.path.localeCompare(b.path) || a.method.localeCompare(b.method));
}

/** The methods of a path; empty if no route has it. */
export function allowedMethods(routes: readonly Route[], path: string): string[] {
  const found = routes.filter((route) => patternOf(route.path).test(path));
  return [...new Set(found.map((route) => route.method))];
}

/** The base path of both APIs; operators' routes are outside it. */
const API_BASE = "/api/v1";
/** The last parts of a path that are compared: no route has more. */
const MAX_ROUTE_PARTS = 6;

/**
 * The path of a route that was requested at a wrong base: as `/v1/models`, `/models`, or below
 * another route. Undefined if no suffix of the path is a route's.
 */
export function pathAtBase(routes: readonly Route[], path: string): string | undefined {
  const parts = path.split("/").filter(Boolean).slice(-MAX_ROUTE_PARTS);
  for (let from = 0; from < parts.length; from++) {
    const end = `/${parts.slice(from).join("/")}`;
    const found = [API_BASE + end, end].find((at) => allowedMethods(routes, at).length > 0);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether the path is below the base of both APIs. */
export function isAtBase(path: string): boolean {
  return path === API_BASE || path.startsWith(`${API_BASE}/`);
}

function routesOf(controller: Type): Route[] {
  const base = String(Reflect.getMetadata("path", controller) ?? "");
  const prototype = controller.prototype as Record<string, unknown>;
  return Object.getOwnPropertyNames(prototype).flatMap((name) => {
    const handler = prototype[name];
    if (typeof handler !== "function") return [];
    const method: unknown = Reflect.getMetadata("method", handler);
    if (typeof method !== "number") return [];
    const path: unknown = Reflect.getMetadata("path", handler);
    const { permission, summary = "" } = operationOf(handler) ?? {};
    return [
      { method: RequestMethod[method] ?? "", path: join(base, String(path)), permission, summary },
    ];
  });
}

function routeOf({ method, path, permission, summary }: ApiOperation): Route {
  return { method, path: routePath(path), permission, summary };
}

function join(base: string, path: string): string {
  return `/${[base, path]
    .flatMap((part) => part.split("/"))
    .filter(Boolean)
    .join("/")}`;
}

function patternOf(path: string): RegExp {
  return new RegExp(`^${path.replace(/:[A-Za-z]+/g, "[^/]+").replace(/\*[A-Za-z]*/g, ".+")}/?$`);
}
