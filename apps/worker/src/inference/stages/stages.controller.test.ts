// holds: shard-join

import "reflect-metadata";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { PassThrough } from "node:stream";
import { AppError } from "@heddle/base/errors";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ReplicaSet } from "../replica-set.ts";
import { joinPeers } from "./join-peers.ts";
import { StagesController } from "./stages.controller.ts";

class StagesModule {}

const clusterToken = "the token of this test";
/** What comes in goes out. */
const echo = {
  build: "one",
  join: async (frames: NodeJS.ReadWriteStream) => void frames.pipe(new PassThrough()).pipe(frames),
};
const replicas = {
  stage(key: string) {
    if (key !== "m#0") throw new AppError("model_loading", `this worker has no stage ${key} yet`);
    return { driver: "last", host: echo };
  },
};
let bound: Awaited<ReturnType<typeof bindServer>>;

beforeAll(async () => {
  const credentials = { clusterToken, node: { role: "worker", name: "first" } as const };
  bound = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const providers = [{ provide: ReplicaSet, useValue: replicas }];
  await serveControllers(
    { module: StagesModule, controllers: [StagesController], providers },
    bound.server,
  );
});
afterAll(() => closeServer(bound.server, 0));

function join(options: { name?: string; build?: string; deployment?: string } = {}) {
  const { name = "last", build = "one", deployment = "m#0" } = options;
  const peer = { node: "n", address: bound.address, deployment, from: 2, to: 4, memoryBytes: 0 };
  const sizes = { contextTokens: 1, kvTokens: 1, maxSequences: 1, index: "" };
  const stage = { from: 4, to: 6, driver: name, peers: [peer], memoryBytes: 0, ...sizes };
  return joinPeers(stage, build, { clusterToken, node: { role: "worker", name } });
}

test("stages: bytes go both ways, also more than what is buffered", async () => {
  const [frames] = await join();
  const sent = randomBytes(9 * 2 ** 20);
  const got: Buffer[] = [];
  frames!.on("data", (bytes: Buffer) => got.push(bytes));
  frames!.write(sent);
  while (Buffer.concat(got).length < sent.length) await once(frames!, "data");
  expect(Buffer.concat(got).equals(sent)).toBe(true);
  frames!.destroy();
});

test("stages: only the worker with the last stage may join, with the same build", async () => {
  const prefix = `the stage of blocks 2 to 3 at ${bound.address}: `;
  await expect(join({ name: "stranger" })).rejects.toMatchObject({
    code: "permission_denied",
    message: `${prefix}last drives this stage, and not stranger`,
  });
  await expect(join({ build: "two" })).rejects.toMatchObject({ code: "precondition_failed" });
  await expect(join({ deployment: "m#1" })).rejects.toMatchObject({
    code: "model_loading",
    message: `${prefix}this worker has no stage m#1 yet`,
  });
});
