import type { Server, ServerDuplexStream, ServerUnaryCall } from "@grpc/grpc-js";
import type { RpcMethod } from "@heddle/rpc/proto";
import { decodeRequests, encodeReplies, type KvReply, type KvRequest } from "./kv-frames.ts";

const asIs = (bytes: Buffer): Buffer => bytes;
const bytesMethod = (path: string): RpcMethod<Buffer, Buffer, Buffer, Buffer> => ({
  path,
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
});

/** The benchmark's client API: one stream of frames, and questions in JSON beside it. */
export const kvStreamMethod = bytesMethod("/heddle.bench.Kv/Stream");
export const kvAskMethod = bytesMethod("/heddle.bench.Kv/Ask");

export interface KvHandlers {
  /** Resolves with the value that was read, or with nothing for a put. */
  handle(request: KvRequest): Promise<Uint8Array | undefined>;
  ask(question: string): Promise<unknown>;
}

const NO_BYTES = new Uint8Array(0);

/** Serves the client API; answers that are ready at one time go out in one frame. */
export function serveKv(server: Server, handlers: KvHandlers): void {
  const definition = {
    stream: { ...kvStreamMethod, requestStream: true, responseStream: true },
    ask: { ...kvAskMethod, requestStream: false, responseStream: false },
  };
  server.addService(definition, {
    stream: (call: ServerDuplexStream<Buffer, Buffer>) => serveStream(call, handlers),
    ask: (
      call: ServerUnaryCall<Buffer, Buffer>,
      reply: (error: Error | null, value?: Buffer) => void,
    ) => {
      handlers.ask(call.request.toString()).then(
        (answer) => reply(null, Buffer.from(JSON.stringify(answer ?? null))),
        (error: Error) => reply(error),
      );
    },
  });
}

function serveStream(call: ServerDuplexStream<Buffer, Buffer>, handlers: KvHandlers): void {
  let replies: KvReply[] = [];
  const send = (): void => {
    call.write(encodeReplies(replies));
    replies = [];
  };
  // One answer leaves after the microtasks, in which all calls of an applied batch end. Where there
  // are more, those of the whole turn go together.
  const sendSoon = (): void => {
    if (replies.length === 1) send();
    else setImmediate(send);
  };
  const answer = (reply: KvReply): void => {
    if (replies.push(reply) === 1) process.nextTick(sendSoon);
  };
  call.on("data", (frame: Buffer) => {
    for (const request of decodeRequests(frame)) {
      const { id } = request;
      handlers.handle(request).then(
        (value = NO_BYTES) => answer({ id, error: undefined, value }),
        (error: Error) => answer({ id, error: error.message, value: NO_BYTES }),
      );
    }
  });
  call.on("end", () => call.end());
  call.on("error", () => undefined);
}
