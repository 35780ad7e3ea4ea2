import { join } from "node:path";
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type {
  ParameterChunk,
  ParameterChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import type { ShardId, ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import type { RpcMethod } from "@heddle/rpc/proto";
import { repositoryRoot } from "../support/command-line.ts";

const definition = loadSync("data-plane.proto", {
  includeDirs: [join(repositoryRoot, "bench/training/peers"), join(repositoryRoot, "proto")],
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
})["heddle.bench.DataPlane"] as ServiceDefinition;

/** Plain calls over the same protobuf messages as ours, by protobuf's own code. */
export const peerMethods = {
  push: named<ParameterChunk, ParameterChunk__Output, ShardId, ShardId__Output>("Push"),
  pull: named<ShardId, ShardId__Output, ParameterChunk, ParameterChunk__Output>("Pull"),
};

function named<Req, ReqOut, Res, ResOut>(name: string): RpcMethod<Req, ReqOut, Res, ResOut> {
  const found = definition[name] as MethodDefinition<Req, Res> | undefined;
  if (!found) throw new Error(`data-plane.proto defines no method ${name}`);
  return found as unknown as RpcMethod<Req, ReqOut, Res, ResOut>;
}
