import type {
  Metadata,
  ServerUnaryCall,
  ServerWritableStream,
  ServiceDefinition,
} from "@grpc/grpc-js";
import {
  type ArgumentsHost,
  applyDecorators,
  Catch,
  type RpcExceptionFilter,
  UseFilters,
} from "@nestjs/common";
import { Ctx, MessagePattern, Payload } from "@nestjs/microservices";
import { type Observable, throwError } from "rxjs";

/** Nest's id of the transport of `GrpcTransport`. */
export const GRPC_TRANSPORT = Symbol("heddle.grpc");

/** The method that a handler serves. */
export interface GrpcCallTarget {
  readonly service: ServiceDefinition;
  readonly method: string;
}

/** The second argument of a handler. */
export interface GrpcContext {
  readonly metadata: Metadata;
  /** Aborted when the caller cancels or dies. */
  readonly signal: AbortSignal;
}

/** The context of a handler with one request and one reply. */
export interface UnaryContext<Request, Reply> extends GrpcContext {
  readonly call: ServerUnaryCall<Request, Reply>;
}

/** The context of a handler that streams its replies. */
export interface StreamContext<Request, Reply> extends GrpcContext {
  readonly call: ServerWritableStream<Request, Reply>;
}

/** Passes every error on as it is: the transport makes a status of it. */
@Catch()
class PassOnErrors implements RpcExceptionFilter {
  catch(error: unknown, _host: ArgumentsHost): Observable<never> {
    return throwError(() => error);
  }
}

/**
 * Makes a controller's method the handler of a gRPC method. Its first argument is the request, and
 * its result the reply.
 * - Of a server stream the handler writes to `context.call`; the stream ends when it resolves.
 * - Of a client or duplex stream the first argument is the stream, which the handler ends.
 *
 * Errors become statuses by `toStatus`.
 */
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
