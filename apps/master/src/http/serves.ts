import type { ApiOperation, ReplyOf } from "@heddle/contracts/api/operation";
import {
  applyDecorators,
  HttpCode,
  RequestMapping,
  RequestMethod,
  UseInterceptors,
} from "@nestjs/common";
import { RouteConfig } from "@nestjs/platform-fastify";
import { ConsistentReads } from "./consistency.ts";

/** The operation of a route, in its Fastify config; a route without it is denied. */
export interface ServedConfig {
  readonly operation?: ApiOperation;
  /** Its body is an `application/x-www-form-urlencoded` one. */
  readonly isUrlencoded?: boolean;
}

const OPERATION = Symbol("heddle.operation");

/** The JSON of an operation's reply; nothing where the handler writes the reply itself. */
type Served<O extends ApiOperation> =
  | ReplyOf<O>
  | undefined
  | Promise<ReplyOf<O> | undefined>
  | Promise<void>;

type HandlerDecorator<O extends ApiOperation> = <
  Handler extends (...parameters: never[]) => Served<O>,
>(
  target: object,
  name: string,
  descriptor: TypedPropertyDescriptor<Handler>,
) => void;

/**
 * Serves an operation: sets the route's method, path, status and permission, and the check of its
 * query. A route without it is denied. Its handler gets the parsed query by `@Query()`.
 */
export function Serves<O extends ApiOperation>(operation: O): HandlerDecorator<O> {
  const { method, path, status = 200, readsState } = operation;
  const config: ServedConfig = { operation };
  const decorate = applyDecorators(
    RequestMapping({ method: RequestMethod[method], path: routePath(path) }),
    HttpCode(status),
    RouteConfig(config),
    ...(readsState ? [UseInterceptors(ConsistentReads)] : []),
  );
  return (target, name, descriptor) => {
    Object.assign(descriptor.value as object, { [OPERATION]: operation });
    decorate(target, name, descriptor);
  };
}

/** The operation that a handler serves; undefined for other handlers. */
export function operationOf(handler: object): ApiOperation | undefined {
  return (handler as { [OPERATION]?: ApiOperation })[OPERATION];
}

/** `/jobs/{id}` as `/jobs/:id`, and `/tile/{path*}` as `/tile/*`. */
export function routePath(path: string): string {
  return path.replace(/\{(\w+)\}/g, ":$1").replace(/\{\w+\*\}$/, "*");
}
