import type { Server as GrpcServer, ServiceDefinition, UntypedHandleCall } from "@grpc/grpc-js";
import { type CustomTransportStrategy, Server } from "@nestjs/microservices";
import { isObservable, lastValueFrom } from "rxjs";
import { methodHandler } from "../method-handler.ts";
import { GRPC_TRANSPORT, type GrpcCallTarget } from "./grpc-call.ts";

/** Nest's transport over a gRPC server that is bound already; serves the `GrpcCall` handlers. */
export class GrpcTransport extends Server implements CustomTransportStrategy {
  override readonly transportId = GRPC_TRANSPORT;
  readonly #server: GrpcServer;

  constructor(server: GrpcServer) {
    super();
    this.#server = server;
  }

  listen(callback: () => void): void {
    const services = new Map<ServiceDefinition, Record<string, UntypedHandleCall>>();
    for (const handler of this.messageHandlers.values()) {
      const { service, method } = handler.extras as GrpcCallTarget & Record<string, unknown>;
      const handlers = services.get(service) ?? {};
      services.set(service, handlers);
      handlers[method] = methodHandler(service, method, async (request, context) => {
        const result: unknown = await handler(request, context);
        return isObservable(result) ? lastValueFrom(result) : result;
      });
    }
    for (const [service, handlers] of services) this.#server.addService(service, handlers);
    callback();
  }

  /** Nest closes its transport first, but calls may continue: who bound the server closes it. */
  close(): void {}

  on(): void {
    throw new Error("the gRPC transport has no events");
  }

  unwrap<T>(): T {
    return this.#server as T;
  }
}
