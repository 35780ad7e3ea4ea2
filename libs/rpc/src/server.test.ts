// holds: ops-node-wire, sec-cluster-token

import "reflect-metadata";
import {
  Client,
  credentials,
  type MethodDefinition,
  type ServerUnaryCall,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { HealthCheckResponse__Output } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckResponse";
import { afterEach, expect, test } from "vitest";
import { Health } from "./health.ts";
import { GrpcHealthController } from "./nest/grpc-health.controller.ts";
import { serveControllers } from "./nest/serve-controllers.ts";
import { Peer } from "./peer.ts";
import { healthService, loadMethod } from "./proto.ts";
import { type BoundServer, bindServer, closeServer } from "./server.ts";
import { toStatus } from "./status.ts";

const unary = { requestStream: false, responseStream: false };
const clusterToken = "the token of this test";
const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

class HealthModule {}

async function serve(load: () => Promise<object>): Promise<BoundServer & { health: Health }> {
  const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials: { clusterToken } });
  const health = new Health();
  const providers = [{ provide: Health, useValue: health }];
  const controllers = [GrpcHealthController];
  await serveControllers({ module: HealthModule, controllers, providers }, bound.server);
  bound.server.addService(
    { load: { ...loadMethod, ...unary } },
    {
      load: (_call: ServerUnaryCall<object, object>, reply: sendUnaryData<object>) => {
        load().then(
          (value) => reply(null, value),
          (error: unknown) => reply(toStatus(error)),
        );
      },
    },
  );
  closing.push(() => closeServer(bound.server, 0));
  return { ...bound, health };
}

function dial(address: string, token = clusterToken): Peer {
  const peer = new Peer(address, { clusterToken: token });
  closing.push(() => peer.close());
  return peer;
}

test("token: a call with the cluster's is answered, with another refused", async () => {
  let calls = 0;
  const { address } = await serve(async () => {
    calls += 1;
    return {};
  });
  await dial(address).unary(loadMethod, {}, { deadlineMs: 5_000 });
  expect(calls).toBe(1);
  for (const wrong of ["another token", `${clusterToken}x`, ""]) {
    const call = dial(address, wrong).unary(loadMethod, {}, { deadlineMs: 5_000 });
    await expect(call).rejects.toMatchObject({ code: "invalid_api_key" });
  }
  expect(calls).toBe(1);
});

test("proxy: the environment's proxy is not used between nodes", async () => {
  const { address } = await serve(async () => ({}));
  const before = process.env["http_proxy"];
  process.env["http_proxy"] = "http://127.0.0.1:9";
  try {
    await dial(address).unary(loadMethod, {}, { deadlineMs: 5_000 });
  } finally {
    if (before === undefined) delete process.env["http_proxy"];
    else process.env["http_proxy"] = before;
  }
});

test("error: a handler's AppError reaches the caller with its code", async () => {
  const { address } = await serve(async () => {
    throw new AppError("overloaded", "too much", { retryAfterMs: 7 });
  });
  const call = dial(address).unary(loadMethod, {}, { deadlineMs: 5_000 });
  const expected = { code: "overloaded", message: "too much", retryAfterMs: 7, node: address };
  await expect(call).rejects.toMatchObject(expected);
});

test("deadline: a call ends at it, and at its signal", async () => {
  const { address } = await serve(() => new Promise(() => {}));
  const peer = dial(address);
  const late = peer.unary(loadMethod, {}, { deadlineMs: 50 });
  await expect(late).rejects.toMatchObject({ code: "deadline_exceeded" });
  const signal = AbortSignal.timeout(20);
  const abandoned = peer.unary(loadMethod, {}, { deadlineMs: 5_000, signal });
  await expect(abandoned).rejects.toMatchObject({ code: "cancelled" });
  const never = peer.unary(loadMethod, {}, { deadlineMs: 5_000, signal: AbortSignal.abort() });
  await expect(never).rejects.toMatchObject({ code: "cancelled" });
});

test("health: needs no token and reports when serving stops", async () => {
  const { address, health } = await serve(async () => ({}));
  const client = new Client(address, credentials.createInsecure());
  closing.push(() => client.close());
  const checkMethod = healthService["Check"] as MethodDefinition<
    object,
    HealthCheckResponse__Output
  >;
  const check = () =>
    new Promise<HealthCheckResponse__Output | undefined>((resolve, reject) => {
      const { path, requestSerialize, responseDeserialize } = checkMethod;
      client.makeUnaryRequest(path, requestSerialize, responseDeserialize, {}, (error, reply) =>
        error ? reject(error) : resolve(reply),
      );
    });
  expect(await check()).toEqual({ status: "SERVING" });
  health.stopServing();
  expect(await check()).toEqual({ status: "NOT_SERVING" });
});

test("port: one in use is refused with advice", async () => {
  const { address } = await serve(async () => ({}));
  const port = Number(address.split(":")[1]);
  const again = bindServer({ host: "127.0.0.1", port, credentials: { clusterToken } });
  await expect(again).rejects.toThrow(/cannot listen for gRPC on .*choose another --grpc-port/);
});
