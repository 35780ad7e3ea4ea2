import { once } from "node:events";
import { join } from "node:path";
import { Client, credentials } from "@grpc/grpc-js";
import { Child } from "../support/child-process.ts";
import { benchFolder, repositoryRoot } from "../support/command-line.ts";
import { type DataSide, timed } from "./data-side.ts";
import { peerMethods } from "./grpc-peer-methods.ts";

/** Unmodified grpc-js with messages of 1 MiB; its server copies and does not add. */
export async function grpcJsSide(bytes: number): Promise<DataSide> {
  const child = new Child({
    name: "grpc-js",
    command: process.execPath,
    args: [join(repositoryRoot, "bench/training/grpc-peer.ts"), String(bytes)],
    logFile: join(benchFolder, "grpc-peer.log"),
  });
  const address = (await child.line(/ready (.+)/, 20_000))[1] ?? "";
  const options = { "grpc.max_receive_message_length": -1 };
  const client = new Client(address, credentials.createInsecure(), options);
  const part = Buffer.alloc(bytes, 3);
  const into = Buffer.alloc(bytes);
  return {
    name: "grpc-js",
    pids: [process.pid, child.pid],
    push: () => timed(() => push(client, part)),
    pull: () => timed(() => pull(client, into)),
    close: async () => {
      client.close();
      await child.stop();
    },
  };
}

async function push(client: Client, part: Buffer): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const method = peerMethods.push;
  const call = client.makeClientStreamRequest(
    method.path,
    method.requestSerialize,
    method.responseDeserialize,
    (error) => (error ? reject(error) : resolve()),
  );
  const step = 1024 * 1024;
  for (let offset = 0; offset < part.length; offset += step) {
    const data = part.subarray(offset, offset + step);
    if (!call.write({ offset, data })) await once(call, "drain");
  }
  call.end();
  await promise;
}

async function pull(client: Client, into: Buffer): Promise<void> {
  const { path, requestSerialize, responseDeserialize } = peerMethods.pull;
  const call = client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, {});
  for await (const { data, offset } of call) into.set(data, offset);
}
