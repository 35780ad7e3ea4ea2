import type { ServerUnaryCall, ServerWritableStream, ServiceDefinition } from "@grpc/grpc-js";
import {
  type ArgumentsHost,
  applyDecorators,
  Catch,
  type RpcExceptionFilter,
  UseFilters,
} from "@nestjs/common";
import { Ctx, MessagePattern, Payload } from "@nestjs/microservices";
import { type Observable, throwError } from "rxjs";
import type { CallContext } from "../method-handler.ts";

/** Nest's id of the transport of `GrpcTransport`. */
export const GRPC_TRANSPORT = Symbol("heddle.grpc");

/** The method that a handler serves. */
export interface GrpcCallTarget {
  readonly service: ServiceDefinition;
  readonly method: string;
}

/** The second argument of a handler. */
export type GrpcContext = CallContext;

/** The context of a handler with one request and one reply. */
export type UnaryContext<Request, Reply> = CallContext<ServerUnaryCall<Request, Reply>>;

/** The context of a handler that streams its replies. */
export type StreamContext<Request, Reply> = CallContext<ServerWritableStream<Request, Reply>>;

/** Passes every error on as it is: the transport makes a status of it. */
@Catch()
class PassOnErrors implements RpcExceptionFilter {
  catch(error: unknown, _host: ArgumentsHost): Observable<never> {
    return throwError(() => error);
  }
}

/** Makes a controller's method the handler of a gRPC method, with the contract of `methodHandler`. */
export function GrpcCall(service: ServiceDefinition, method: string): MethodDecorator {
  const definition = service[method];
  if (!definition) throw new Error(`the gRPC service has no method ${method}`);
  const served: GrpcCallTarget = { service, method };
  const serve = applyDecorators(
    MessagePattern(definition.path, GRPC_TRANSPORT, served),
    UseFilters(new PassOnErrors()),
  );
  return (target, name, descriptor) => {
    Payload()(target, name, 0);
    Ctx()(target, name, 1);
    return serve(target, name, descriptor);
  };
}
