import { once } from "node:events";
import {
  type handleClientStreamingCall,
  Server,
  ServerCredentials,
  type ServerWritableStream,
  type ServiceDefinition,
} from "@grpc/grpc-js";
import { peerMethods } from "./grpc-peer-methods.ts";

// The peer: grpc-js as it comes, with protobuf messages of 1 MiB. A push is a stream from the
// client, copied into a buffer and not even added.

const bytes = Number(process.argv[2]);
const held = Buffer.alloc(bytes, 7);
const received = Buffer.alloc(bytes);

type Chunk = { readonly data: Uint8Array; readonly offset: number };
const push: handleClientStreamingCall<Chunk, object> = (call, reply) => {
  call.on("data", ({ data, offset }: Chunk) => received.set(data, offset));
  call.on("end", () => reply(null, {}));
};
const pull = async (call: ServerWritableStream<object, Chunk>) => {
  const step = 1024 * 1024;
  for (let offset = 0; offset < bytes; offset += step) {
    const data = held.subarray(offset, offset + step);
    if (!call.write({ offset, data })) await once(call, "drain");
  }
  call.end();
};
const server = new Server({ "grpc.max_receive_message_length": -1 });
server.addService(peerMethods as unknown as ServiceDefinition, { push, pull });
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(`ready 127.0.0.1:${port}`);
});
