import type {
  Server as GrpcServer,
  handleBidiStreamingCall,
  handleUnaryCall,
  Metadata,
  ServiceDefinition,
  UntypedHandleCall,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { type CustomTransportStrategy, type MessageHandler, Server } from "@nestjs/microservices";
import { isObservable, lastValueFrom } from "rxjs";
import { toStatus } from "../status.ts";
import { GRPC_TRANSPORT, type GrpcCallTarget } from "./grpc-call.ts";

/** A call of any kind; those of a client stream have no request. */
interface AnyCall {
  readonly metadata: Metadata;
  readonly request?: unknown;
  once(event: "cancelled", listener: () => void): unknown;
}

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
      handlers[method] = handle(service, method, handler);
    }
    for (const [service, handlers] of services) this.#server.addService(service, handlers);
    callback();
  }

  /** Nest closes its transport first, but calls may go on: who bound the server closes it. */
  close(): void {}

  on(): void {
    throw new Error("the gRPC transport has no events");
  }

  unwrap<T>(): T {
    return this.#server as T;
  }
}

function handle(
  service: ServiceDefinition,
  method: string,
  handler: MessageHandler,
): UntypedHandleCall {
  const { requestStream = false, responseStream = false } = service[method] ?? {};
  const run = async (call: AnyCall): Promise<unknown> => {
    const context = { call, metadata: call.metadata, signal: cancellation(call) };
    const result: unknown = await handler(requestStream ? call : call.request, context);
    return isObservable(result) ? lastValueFrom(result) : result;
  };
  if (!requestStream && !responseStream) {
    const unary: handleUnaryCall<unknown, unknown> = (call, reply) => {
      run(call).then(
        (value) => reply(null, value),
        (error: unknown) => reply(toStatus(error)),
      );
    };
    return unary;
  }
  const streamed: handleBidiStreamingCall<unknown, unknown> = (call) => {
    run(call).then(
      () => !requestStream && call.end(),
      (error: unknown) => call.emit("error", toStatus(error)),
    );
  };
  return streamed;
}

function cancellation(call: AnyCall): AbortSignal {
  const gone = new AbortController();
  call.once("cancelled", () =>
    gone.abort(new AppError("cancelled", "the caller closed the connection")),
  );
  return gone.signal;
}
