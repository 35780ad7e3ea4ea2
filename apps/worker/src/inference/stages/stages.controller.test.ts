// holds: shard-join, shard-ranges

import "reflect-metadata";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { AppError } from "@heddle/base/errors";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { indexedModel, stageWeights } from "@heddle/engines/shards/weights/stage-weights";
import { AbsentRange } from "@heddle/engines/weights/ranges/range-source";
import { createAuthority, requestCertificate, signNode } from "@heddle/pki/certificate-authority";
import { TlsIdentity } from "@heddle/pki/tls-identity";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { ENGINES } from "../engine-ports.ts";
import { llamaPorts } from "../llama-ports.ts";
import { ReplicaSet } from "../replica-set.ts";
import { type JoinedStage, joinPeers } from "./join-peers.ts";
import { weightsPeer } from "./peer-weights.ts";
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
const cache = mkdtempSync(join(tmpdir(), "heddle-stages-"));
let bound: Awaited<ReturnType<typeof bindServer>>;

async function serveStages(credentials: NodeCredentials) {
  const serving = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const providers = [
    { provide: ReplicaSet, useValue: replicas },
    { provide: ENGINES, useValue: llamaPorts({ cacheDirectory: cache, allowedHosts: [] }) },
  ];
  await serveControllers(
    { module: StagesModule, controllers: [StagesController], providers },
    serving.server,
  );
  return serving;
}

beforeAll(async () => {
  bound = await serveStages({ clusterToken, node: { role: "worker", name: "first" } });
});
afterAll(async () => {
  await closeServer(bound.server, 0);
  rmSync(cache, { recursive: true });
});

interface Joining {
  readonly name?: string;
  readonly build?: string;
  readonly deployment?: string;
  readonly address?: string;
}

async function joinFirst(options: Joining = {}, credentials?: NodeCredentials) {
  const [joined] = await joinStage(options, credentials);
  return joined!.frames;
}

function joinStage(
  options: Joining = {},
  credentials?: NodeCredentials,
  joined = new Set<JoinedStage>(),
  unreachable = new Map<string, number>(),
) {
  const { name = "last", build = "one", deployment = "m#0", address = bound.address } = options;
  const peer = { node: "n", address, deployment, from: 2, to: 4, memoryBytes: 0 };
  const sizes = { contextTokens: 1, kvTokens: 1, maxSequences: 1, index: "" };
  const stage = { from: 4, to: 6, driver: name, peers: [peer], memoryBytes: 0, ...sizes };
  const own = { clusterToken, node: { role: "worker", name } } as const;
  return joinPeers(stage, build, credentials ?? own, { joined, unreachable });
}

test("stages: bytes go both ways, also more than what is buffered", async () => {
  const frames = await joinFirst();
  const sent = randomBytes(9 * 2 ** 20);
  const got: Buffer[] = [];
  frames.on("data", (bytes: Buffer) => got.push(bytes));
  frames.write(sent);
  while (Buffer.concat(got).length < sent.length) await once(frames, "data");
  expect(Buffer.concat(got).equals(sent)).toBe(true);
  frames.destroy();
});

test("stages: one that is joined stays so while another cannot be", async () => {
  const joined = new Set<JoinedStage>();
  const [first] = await joinStage({}, undefined, joined);
  await expect(joinStage({ deployment: "m#1" }, undefined, joined)).rejects.toThrow(/no stage m#1/);
  expect(first!.frames.destroyed).toBe(false);
  expect(await joinStage({}, undefined, joined)).toEqual([first]);
  first!.frames.destroy();
  const [again] = await joinStage({}, undefined, joined);
  expect(again!.frames).not.toBe(first!.frames);
  expect([...joined]).toEqual([again]);
  again!.frames.destroy();
});

test("stages: one that is not reached is noted, one that refuses is not", async () => {
  const unreachable = new Map<string, number>();
  const join = (options: Joining) => joinStage(options, undefined, new Set(), unreachable);
  const beganMs = performance.now();
  for (let i = 0; i < 2; i++) {
    const failed = { code: "unavailable" };
    await expect(join({ address: "127.0.0.1:1" })).rejects.toMatchObject(failed);
    // Since the first try.
    expect(unreachable.get("n")).toBeCloseTo(beganMs, -2);
  }
  await expect(join({ deployment: "m#1" })).rejects.toMatchObject({ code: "model_loading" });
  expect([...unreachable]).toEqual([]);
});

test("stages: a partition between two of them ends their stream", async () => {
  const proxy = createServer((near) => {
    const far = connect(Number(bound.address.split(":").at(-1)), "127.0.0.1");
    pairs.push([near, far]);
    for (const socket of [near, far]) socket.on("error", () => undefined);
    near.pipe(far).pipe(near);
  });
  const pairs: [Socket, Socket][] = [];
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  const { port } = proxy.address() as AddressInfo;
  const frames = await joinFirst({ address: `127.0.0.1:${port}` });
  const ended = once(frames, "close");
  frames.write("lost");
  // No packet passes any more, and none says so.
  for (const [near, far] of pairs) {
    near.unpipe(far);
    far.unpipe(near);
    near.pause();
    far.pause();
  }
  await ended;
  for (const socket of pairs.flat()) socket.destroy();
  proxy.close();
});

test("stages: only the worker with the last stage may join, with the same build", async () => {
  const prefix = `the stage of blocks 2 to 3 at ${bound.address}: `;
  await expect(joinFirst({ name: "stranger" })).rejects.toMatchObject({
    code: "permission_denied",
    message: `${prefix}last drives this stage, and not stranger`,
  });
  await expect(joinFirst({ build: "two" })).rejects.toMatchObject({ code: "precondition_failed" });
  await expect(joinFirst({ deployment: "m#1" })).rejects.toMatchObject({
    code: "model_loading",
    message: `${prefix}this worker has no stage m#1 yet`,
  });
});

test("stages: under TLS a certificate shows which worker joins", async () => {
  const authority = await createAuthority();
  const certified = async (name: string) => {
    const { privateKey, csr } = await requestCertificate();
    const certificate = await signNode(authority, csr, { role: "worker", name }, 3_600_000);
    const material = { authority: authority.certificate, certificate, privateKey };
    return { clusterToken: "", tls: new TlsIdentity(material) };
  };
  const server = await serveStages(await certified("first"));
  onTestFinished(() => closeServer(server.server, 0));
  const { address } = server;
  const frames = await joinFirst({ address }, await certified("last"));
  frames.destroy();
  // Whatever name it gives.
  await expect(joinFirst({ address }, await certified("stranger"))).rejects.toMatchObject({
    code: "permission_denied",
    message: expect.stringContaining("last drives this stage, and not stranger"),
  });
  const bare = { clusterToken, node: { role: "worker", name: "last" } as const };
  await expect(joinFirst({ address }, bare)).rejects.toMatchObject({ code: "unavailable" });
});

test("stages: a worker gets its blocks from another worker, which it verifies", async () => {
  const file = join(cache, "six.gguf");
  await writeTinyModel(file, { blocks: 6 });
  const local = { key: "six", file: "six.gguf", sources: [`file://${file}`] };
  const signal = AbortSignal.timeout(100_000);
  const { index } = await indexedModel(local, { cacheDirectory: cache, signal });
  const node = { role: "worker", name: "last" } as const;
  const peer = weightsPeer(bound.address, { clusterToken, node });
  const elsewhere = { ...local, sources: ["file:///nowhere/six.gguf"] };
  const range = { from: 2, to: 4, index };
  const other = join(cache, "other");
  const options = { cacheDirectory: other, signal, peers: [peer] };
  const got = readFileSync(await stageWeights(elsewhere, range, options));
  const cut = readFileSync(await stageWeights(local, range, { cacheDirectory: cache, signal }));
  expect(got.equals(cut)).toBe(true);
  await expect(peer.index("0".repeat(64), signal)).rejects.toBeInstanceOf(AbsentRange);
  const alone = stageWeights(elsewhere, range, { cacheDirectory: join(cache, "none"), signal });
  await expect(alone).rejects.toMatchObject({ code: "model_failed" });
});

test("stages: only workers read weights of each other", async () => {
  const node = { role: "parameter-server", name: "other" } as const;
  const peer = weightsPeer(bound.address, { clusterToken, node });
  const index = peer.index("0".repeat(64), AbortSignal.timeout(100_000));
  await expect(index).rejects.toThrow(/is for/);
});
