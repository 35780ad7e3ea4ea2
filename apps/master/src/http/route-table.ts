import { RequestMethod, type Type } from "@nestjs/common";
import { permissionOf } from "./access.ts";

/** One route as it is served: the path with `:name` parameters, and what a caller needs for it. */
export interface RouteInfo {
  readonly method: string;
  readonly path: string;
  /** A permission, or `public` or `authenticated`; absent means that the route is denied. */
  readonly permission: string | undefined;
  readonly summary: string;
}

/** Every route of the controllers, read from their decorators, ordered by path. */
export function listRoutes(controllers: readonly Type[]): RouteInfo[] {
  return controllers
    .flatMap(routesOf)
    .sort((a, b) => a.path.localeCompare(b.path) || a.method.localeCompare(b.method));
}

/** The methods that a path has, empty where no route knows it. */
export function allowedMethods(routes: readonly RouteInfo[], path: string): string[] {
  const found = routes.filter((route) => patternOf(route.path).test(path));
  return [...new Set(found.map((route) => route.method))];
}

/** Where both APIs lie; what operators ask for lies beside it. */
const API_BASE = "/api/v1";
/** Of a path, the last parts that are looked at: no route has more. */
const MAX_ROUTE_PARTS = 6;

/**
 * The path of a route that was asked for at a wrong base: as `/v1/models`, `/models`, or below the
 * path of another route. Undefined where no end of the path is a route's.
 */
export function pathAtBase(routes: readonly RouteInfo[], path: string): string | undefined {
  const parts = path.split("/").filter(Boolean).slice(-MAX_ROUTE_PARTS);
  for (let from = 0; from < parts.length; from++) {
    const end = `/${parts.slice(from).join("/")}`;
    const found = [API_BASE + end, end].find((at) => allowedMethods(routes, at).length > 0);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether the path lies where both APIs do. */
export function isAtBase(path: string): boolean {
  return path === API_BASE || path.startsWith(`${API_BASE}/`);
}

function routesOf(controller: Type): RouteInfo[] {
  const base = String(Reflect.getMetadata("path", controller) ?? "");
  const prototype = controller.prototype as Record<string, unknown>;
  return Object.getOwnPropertyNames(prototype).flatMap((name) => {
    const handler = prototype[name];
    if (typeof handler !== "function") return [];
    const method: unknown = Reflect.getMetadata("method", handler);
    if (typeof method !== "number") return [];
    const path: unknown = Reflect.getMetadata("path", handler);
    const { permission, summary } = permissionOf(handler);
    return [
      { method: RequestMethod[method] ?? "", path: join(base, String(path)), permission, summary },
    ];
  });
}

function join(base: string, path: string): string {
  return `/${[base, path]
    .flatMap((part) => part.split("/"))
    .filter(Boolean)
    .join("/")}`;
}

function patternOf(path: string): RegExp {
  return new RegExp(`^${path.replace(/:[A-Za-z]+/g, "[^/]+").replace(/\*[A-Za-z]+/g, ".+")}/?$`);
}
