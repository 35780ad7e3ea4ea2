import { type ServiceError, status } from "@grpc/grpc-js";
import type { Peer } from "../peer.ts";
import { type RpcMethod, services } from "../proto.ts";
import { fromStatus } from "../status.ts";

/** Every method of proto/. */
export const ALL_METHODS = [...services.values()].flatMap((service) => Object.values(service));

/** How an empty call ends: `served`, `unserved` by that process, or the code of its error. */
export function callOutcome(peer: Peer, method: (typeof ALL_METHODS)[number]): Promise<string> {
  const rpc = method as unknown as RpcMethod<object, object, object, object>;
  const { promise, resolve } = Promise.withResolvers<string>();
  const stream = peer.duplex(rpc);
  stream.on("data", () => undefined);
  stream.on("end", () => resolve("served"));
  stream.on("error", (error: ServiceError) => {
    const isUnserved = error.code === status.UNIMPLEMENTED;
    resolve(isUnserved ? "unserved" : fromStatus(error, "the server").code);
  });
  stream.write({});
  stream.end();
  return promise;
}
