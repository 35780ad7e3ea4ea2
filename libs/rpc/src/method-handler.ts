import type {
  handleBidiStreamingCall,
  handleUnaryCall,
  Metadata,
  ServiceDefinition,
  UntypedHandleCall,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { toStatus } from "./status.ts";

/** A call of any kind; those of a client stream have no request. */
interface AnyCall {
  readonly metadata: Metadata;
  readonly request?: unknown;
  once(event: "cancelled", listener: () => void): unknown;
}

/** What a handler gets with the request. */
export interface CallContext<Call = unknown> {
  readonly call: Call;
  readonly metadata: Metadata;
  /** Aborted when the caller cancels or dies. */
  readonly signal: AbortSignal;
}

/**
 * The handler of a method for the gRPC server. Its first argument is the request, and its result the
 * reply.
 * - Of a server stream it writes to `context.call`; the stream ends when it resolves.
 * - Of a client or duplex stream the first argument is the stream, which it ends.
 *
 * Errors become statuses by `toStatus`.
 */
export function methodHandler<Request, Call>(
  service: ServiceDefinition,
  method: string,
  handler: (request: Request, context: CallContext<Call>) => unknown,
): UntypedHandleCall {
  const { requestStream = false, responseStream = false } = service[method] ?? {};
  const run = async (call: AnyCall): Promise<unknown> => {
    const context = { call: call as Call, metadata: call.metadata, signal: cancellation(call) };
    return handler((requestStream ? call : call.request) as Request, context);
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
