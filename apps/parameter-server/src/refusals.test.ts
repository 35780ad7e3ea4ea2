import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DataConnection } from "@heddle/parameters/data-plane/data-connection";
import { PartSource } from "@heddle/parameters/data-plane/part-source";
import { planDigest } from "@heddle/parameters/shards/job-plan";
import { shardMethods } from "@heddle/parameters/shards/shard-methods";
import {
  checkpointShards,
  closeShards,
  openShards,
  restoreShards,
  shardStatuses,
} from "@heddle/parameters/shards/shard-set";
import { encodeShard } from "@heddle/parameters/shards/shard-spec";
import { credentials, startServer, stopServers } from "@heddle/parameters/testing/server-processes";
import { issueTicket } from "@heddle/rpc/job-ticket";
import { Peer } from "@heddle/rpc/peer";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { closeClients, jobOn, joinJob, tensors } from "./testing/training-job.ts";

// Invalid input to real server processes; after each refusal the run continues.

let servers: readonly string[] = [];

beforeAll(async () => {
  servers = (await Promise.all([startServer(), startServer()])).map(({ address }) => address);
});
afterEach(closeClients);
afterAll(stopServers);

const terms = { weight: 1, learningRate: 1 };
const ones = tensors(() => 1);
const { signal } = new AbortController();
const deadline = { deadlineMs: 10_000 };

/** A job of two workers, both of which have pulled the initial zeros. */
async function twoWorkers(options = {}) {
  const job = jobOn(servers, { workers: 2, ...options });
  await openShards(job);
  const [first, second] = [await joinJob(job, 0), await joinJob(job, 1)];
  await first.initialize(tensors(() => 0));
  return { job, first, second };
}

/** One whole update: the parameters go from `before` to `before - 1`. */
async function expectUpdate(
  { first, second }: Awaited<ReturnType<typeof twoWorkers>>,
  before: number,
): Promise<void> {
  await Promise.all([first.push(ones, terms), second.push(ones, terms)]);
  for (const client of [first, second]) {
    const into = tensors(() => 7);
    await client.pull(into);
    expect(into).toEqual(tensors(() => before - 1));
  }
}

// holds: ps-bad-input
test.each(["none", "bf16", "int8", "topk"] as const)(
  "NaN or infinity: the part is refused, the update uses valid ones: %s",
  async (compression) => {
    const workers = await twoWorkers({ compression });
    const { job, first } = workers;
    // Both clients keep the error of what they sent; here it is zero.
    const second = await joinJob(job, 1, { topkFraction: 1 });
    const good = await joinJob(job, 0, { topkFraction: 1 });
    await good.push(ones, terms);
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const poisoned = { ...tensors(() => 1), bias: new Float32Array(7).fill(bad) };
      const doomed = await joinJob(job, 1, { topkFraction: 1 });
      const push = doomed.push(poisoned, terms);
      await expect(push).rejects.toMatchObject({
        code: "invalid_value",
        message: expect.stringMatching(/NaN or infinity.*lower the learning rate/s),
      });
    }
    await second.push(ones, terms);
    const into = tensors(() => 7);
    expect(await second.pull(into)).toBe(1);
    for (const value of [...into.weight, ...into.bias]) expect(value).toBeCloseTo(-1, 5);
    // A value that an encoding would hide is refused by the worker's own client.
    const refused = (await first.status()).map(({ refusedInvalid }) => refusedInvalid);
    expect(refused.reduce((sum, count) => sum + count)).toBe(compression === "none" ? 2 : 0);
  },
);

// holds: ps-bad-input
test("length: a wrong tensor is refused before it is sent, a wrong part on arrival", async () => {
  const workers = await twoWorkers();
  const { job, first } = workers;
  const wrong = { ...ones, bias: new Float32Array(8) };
  await expect(first.push(wrong, terms)).rejects.toThrow(/the tensor bias has 8 elements.*\[7\]/);
  await expect(first.pull(wrong)).rejects.toMatchObject({ code: "invalid_value" });
  // A worker with another model, for which its plan is wrong.
  const parameters = [
    { name: "weight", shape: [37, 531 * 2], type: "f32" as const },
    { name: "bias", shape: [300], type: "f32" as const },
    { name: "gain", shape: [301 * 2], type: "f32" as const },
  ];
  const other = await joinJob({ ...job, spec: { ...job.spec, parameters } }, 0);
  const large = {
    weight: new Float32Array(37 * 531 * 2),
    bias: new Float32Array(300),
    gain: new Float32Array(602),
  };
  const push = other.push(large, terms);
  await expect(push).rejects.toThrow(/must have the same model and compression/);
  const pull = other.pull(large);
  await expect(pull).rejects.toThrow(/all workers of a job must have the same model/);
  // A worker with the right plan and other bytes.
  const source = await PartSource.start({
    attempt: 1,
    jobToken: job.spec.jobToken,
    isEncrypted: false,
    host: "127.0.0.1",
    paths: ["tcp"],
    socketPath: "",
  });
  const pieces = [new Uint8Array(400)];
  source.keep(1, new Map([0, 1].map((shard) => [shard, { bytes: 400, pieces }])));
  const peer = new Peer(servers[0] ?? "", credentials, "parameter-server");
  const id = { jobId: job.spec.jobId, attempt: 1, shard: 0 };
  const request = { id, rank: 0, clock: 1, ...terms, sources: [...source.addresses] };
  const short = peer.unary(shardMethods.push, { ...request, plan: planDigest(job.spec) }, deadline);
  await expect(short).rejects.toMatchObject({ code: "invalid_value" });
  peer.close();
  await source.close();
  await expectUpdate(workers, 0);
});

// holds: ps-bad-input
test.each(["unix", "grpc"] as const)(
  "shape: one of the same padded length is refused, and so is its pull: %s",
  async (path) => {
    const parameters = [{ name: "weight", shape: [1, 1], type: "f32" as const }];
    const job = jobOn(servers, { workers: 2, parameters });
    await openShards(job);
    const [first, second] = [await joinJob(job, 0), await joinJob(job, 1)];
    await first.initialize({ weight: new Float32Array(1) });
    const wide = [{ name: "weight", shape: [9, 1], type: "f32" as const }];
    const other = await joinJob({ ...job, spec: { ...job.spec, parameters: wide } }, 1, {
      paths: [path],
    });
    const part = { weight: new Float32Array(9).fill(1) };
    const refusal = {
      code: "invalid_value",
      message: expect.stringMatching(/are not the job's, which has weight \[1,1\] in 2 shards/),
    };
    await expect(other.push(part, terms)).rejects.toMatchObject(refusal);
    await expect(other.pull(part)).rejects.toMatchObject(refusal);
    const one = { weight: Float32Array.of(1) };
    await Promise.all([first.push(one, terms), second.push(one, terms)]);
    expect(await second.pull(one)).toBe(1);
    expect(one.weight).toEqual(Float32Array.of(-1));
  },
);

test("refusal: one too long for a data connection is cut and still reported", async () => {
  const parameters = (length: number) => [
    { name: "ü".repeat(10_000), shape: [length], type: "f32" as const },
  ];
  const job = jobOn(servers, { workers: 2, parameters: parameters(1) });
  await openShards(job);
  const other = { ...job, spec: { ...job.spec, parameters: parameters(9) } };
  const stray = await joinJob(other, 1, { paths: ["unix"] });
  const part = { ["ü".repeat(10_000)]: new Float32Array(9) };
  await expect(stray.pull(part)).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(/are not the job's, which has ü{1000}/),
  });
});

// holds: ps-unauthenticated
test("refusals: connections without the token and unknown ranks are refused", async () => {
  const workers = await twoWorkers();
  const [status] = await shardStatuses(workers.job);
  const [, host, port] = /^tcp:(.+):(\d+)$/.exec(status?.dataAddress ?? "") ?? [];
  const foreign = connect({ host: host ?? "", port: Number(port) });
  foreign.write("GET / HTTP/1.1\r\nHost: parameters.example\r\nAccept: */*\r\n\r\n");
  await once(foreign, "close");
  const sink = { begin: () => {}, space: () => new Uint8Array(1), filled: () => {} };
  const impostor = await DataConnection.open(status?.dataAddress ?? "", randomBytes(32), signal);
  const request = impostor.request({ rank: 0, clock: 0 }, sink, signal);
  await expect(request).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("was the job token another?"),
  });
  expect((await shardStatuses(workers.job))[0]?.refusedUnauthenticated).toBe(2);
  // No update waits for a rank that the job does not have.
  await expect(joinJob(workers.job, 2)).rejects.toMatchObject({
    code: "conflict",
    message: expect.stringMatching(/rank 2 is none of the 2 workers/),
  });
  await expectUpdate(workers, 0);
});

// holds: ps-unauthenticated
test("stale attempt: is refused and counted, and cannot harm its successor", async () => {
  const { job, first } = await twoWorkers();
  const later = jobOn(servers, { ...job.spec, attempt: 2, jobToken: randomBytes(32) });
  expect(await openShards(later)).toBe(0);
  const after = { first: await joinJob(later, 0), second: await joinJob(later, 1) };
  const stale = {
    code: "precondition_failed",
    message: expect.stringMatching(/attempt 1 .* stale/),
  };
  await expect(first.push(ones, terms)).rejects.toMatchObject(stale);
  await expect(first.pull(tensors(() => 0))).rejects.toMatchObject(stale);
  await expect(openShards(job)).rejects.toMatchObject(stale);
  await expectUpdate({ job: later, ...after }, 0);
  const refused = (await shardStatuses(later)).map(({ refusedStale }) => refusedStale);
  expect(refused.reduce((sum, count) => sum + count)).toBeGreaterThanOrEqual(3);
});

// holds: ps-unauthenticated
test("stale attempt: no method and no earlier connection serves it", async () => {
  const { job } = await twoWorkers();
  const { jobId, jobToken } = job.spec;
  const claims = { jobId, attempt: 1, servers, issuedUnixMs: Date.now() };
  const ticket = issueTicket(credentials, { ...claims, expiresUnixMs: Date.now() + 3_600_000 });
  const peer = new Peer(servers[0] ?? "", { ticket }, "parameter-server");
  const id = { jobId, attempt: 1, shard: 0 };
  const { dataSocket } = await peer.unary(shardMethods.status, id, deadline);
  const early = await DataConnection.open(dataSocket, jobToken, signal);
  const later = jobOn(servers, { ...job.spec, attempt: 2, jobToken: randomBytes(32) });
  await openShards(later);
  const [first, second] = [await joinJob(later, 0), await joinJob(later, 1)];
  const plan = planDigest(job.spec);
  const open = encodeShard(job.spec, 0);
  const push = { id, rank: 0, clock: 1, ...terms, sources: [], plan };
  const calls = {
    open: () => peer.unary(shardMethods.open, open, deadline),
    restore: () => peer.unary(shardMethods.restore, { open, name: "x", pieces: 2 }, deadline),
    status: () => peer.unary(shardMethods.status, id, deadline),
    close: () => peer.unary(shardMethods.close, id, deadline),
    leave: () => peer.unary(shardMethods.changeMember, { id, rank: 1, leaves: true }, deadline),
    join: () => peer.unary(shardMethods.changeMember, { id, rank: 0 }, deadline),
    checkpoint: () => peer.unary(shardMethods.checkpoint, { id, name: "a1-r000001-s2" }, deadline),
    addNorm: () => peer.unary(shardMethods.addNorm, { id, squares: 1 }, deadline),
    push: () => peer.unary(shardMethods.push, push, deadline),
    pull: () => drained(peer.serverStream(shardMethods.pull, { id, rank: 0, plan }, signal)),
    export: () => drained(peer.serverStream(shardMethods.exportShard, { id }, signal)),
  };
  for (const [name, call] of Object.entries(calls)) {
    await expect(call(), name).rejects.toMatchObject({ code: "precondition_failed" });
  }
  const pull = { rank: 0, clock: 0, held: 0, plan };
  const place = new Uint8Array(65_536);
  const into = { begin: () => undefined, space: () => place, filled: () => undefined };
  await expect(early.request(pull, into, signal)).rejects.toThrow();
  const late = await DataConnection.open(dataSocket, jobToken, signal);
  await expect(late.request(pull, into, signal)).rejects.toThrow();
  for (const { workers, departures, version } of await shardStatuses(later)) {
    expect({ workers, departures, version }).toEqual({ workers: 2, departures: 0, version: 0 });
  }
  await expectUpdate({ job: later, first, second }, 0);
  peer.close();
});

async function drained(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream);
}

// holds: ps-push-once
test("push: a retried one is applied once; one that skips a number is out of order", async () => {
  const workers = await twoWorkers();
  const { job, first, second } = workers;
  await first.push(ones, terms);
  // A new client of the same rank continues after the accepted pushes.
  const again = await joinJob(job, 0);
  expect(again.clock).toBe(1);
  const peer = new Peer(servers[0] ?? "", credentials, "parameter-server");
  const id = { jobId: job.spec.jobId, attempt: 1, shard: 0 };
  const plan = planDigest(job.spec);
  const push = (clock: number) =>
    peer.unary(shardMethods.push, { id, rank: 0, clock, ...terms, sources: [], plan }, deadline);
  expect(await push(1)).toMatchObject({ version: 0, path: "" });
  await expect(push(3)).rejects.toMatchObject({ code: "conflict" });
  await second.push(ones, terms);
  const into = tensors(() => 0);
  expect(await again.pull(into)).toBe(1);
  expect(into).toEqual(tensors(() => -1));
  peer.close();
});

// holds: ps-bad-input
test("attempt: one that is opened with another plan is refused", async () => {
  const { job } = await twoWorkers();
  const other = { ...job, spec: { ...job.spec, learningRate: 0.5 } };
  await expect(openShards(other)).rejects.toMatchObject({ code: "conflict" });
  const peer = new Peer(servers[0] ?? "", credentials, "parameter-server");
  const open = { ...encodeShard(job.spec, 0), jobToken: Buffer.from("short") };
  const call = peer.unary(shardMethods.open, open, deadline);
  await expect(call).rejects.toThrow(/job_token needs 32 bytes/);
  const adam = { kind: "adam", beta1: 0.9, beta2: 0.999, epsilon: 1e-8, learningRate: 1 };
  for (const [wrong, expected] of [
    [{ beta2: 1 }, /optimizer\.beta2 is 1, out of its range/],
    [{ epsilon: 0 }, /optimizer\.epsilon is 0/],
    [{ learningRate: Number.POSITIVE_INFINITY }, /learning_rate must be a number above 0/],
    [{ kind: "sgd", momentum: Number.NaN }, /optimizer\.momentum is NaN/],
  ] as const) {
    const optimizer = { ...adam, ...wrong };
    const refused = peer.unary(
      shardMethods.open,
      { ...encodeShard(job.spec, 0), optimizer },
      deadline,
    );
    await expect(refused).rejects.toMatchObject({
      code: "invalid_value",
      message: expect.stringMatching(expected),
    });
  }
  peer.close();
});

// holds: ps-norm
test.each([
  ["gone", "was closed"],
  ["precondition_failed", "was taken over by a later attempt"],
] as const)("norm: an update that lacks it does not block: %s", async (code, _how) => {
  const { job, first, second } = await twoWorkers({ maxGradientNorm: 1 });
  const patient = { deadlineMs: 60_000 };
  const peers = servers.map((address) => new Peer(address, credentials, "parameter-server"));
  const [zero, one] = peers;
  const id = { jobId: job.spec.jobId, attempt: 1, shard: 0 };
  const later = { ...job.spec, attempt: 2, jobToken: randomBytes(32) };
  await (code === "gone"
    ? zero?.unary(shardMethods.close, id, patient)
    : zero?.unary(shardMethods.open, encodeShard(later, 0), patient));
  for (const each of [first, second]) {
    await expect(each.push(ones, terms)).rejects.toMatchObject({ code });
  }
  const failure = { code, message: expect.stringMatching(/update 1 of shard 1 cannot be made/) };
  const pull = { id: { ...id, shard: 1 }, rank: 0, clock: 1, plan: planDigest(job.spec) };
  const limit = AbortSignal.timeout(60_000);
  const chunks = one?.serverStream(shardMethods.pull, { ...pull, held: 0 }, limit);
  const pulled = (async () => {
    for await (const _chunk of chunks ?? []);
  })();
  await expect(pulled).rejects.toMatchObject(failure);
  const member = { id: pull.id, rank: 0, leaves: true, incarnation: 0 };
  await expect(one?.unary(shardMethods.changeMember, member, patient)).rejects.toMatchObject(
    failure,
  );
  // The next attempt takes the server's shard over, as after any other fault.
  const next = jobOn(servers, { ...later, attempt: 3 });
  await closeShards(next);
  await openShards(next);
  await (await joinJob(next, 0)).initialize(tensors(() => 0));
  for (const peer of peers) peer.close();
});

// holds: ps-killed-worker
test("killed worker: in the middle of its part it leaves the update to the others", async () => {
  const workers = await twoWorkers();
  const { job, first, second } = workers;
  await first.push(ones, terms);
  const program = fileURLToPath(new URL("./testing/lost-worker.ts", import.meta.url));
  const peers = servers.map((address) => new Peer(address, credentials, "parameter-server"));
  for (const [shard, peer] of peers.entries()) {
    const [status] = (await shardStatuses(job)).slice(shard);
    const child = spawn(process.execPath, [program, String((status?.elements ?? 0) * 4)]);
    const [address] = (await once(child.stdout, "data")) as [Buffer];
    const id = { jobId: job.spec.jobId, attempt: 1, shard };
    const sources = [String(address).trim()];
    const push = { id, rank: 1, clock: 1, ...terms, sources, plan: planDigest(job.spec) };
    const ended = once(child, "exit");
    const call = peer.unary(shardMethods.push, push, deadline);
    await expect(call).rejects.toMatchObject({ code: expect.stringMatching(/unavailable|lost/) });
    await ended;
    peer.close();
  }
  // Its replacement pushes the same part, and nothing of the broken one is left.
  await second.push(ones, terms);
  const into = tensors(() => 0);
  expect(await second.pull(into)).toBe(1);
  expect(into).toEqual(tensors(() => -1));
});

// holds: ps-paths
test.each(["unix", "tcp", "grpc"] as const)(
  "paths: all data takes %s where only that is allowed",
  async (path) => {
    const job = jobOn(servers);
    await openShards(job);
    const client = await joinJob(job, 0, { paths: [path] });
    const start = tensors((at) => Math.sin(at));
    await client.initialize(start);
    await client.push(ones, terms);
    const into = tensors(() => 0);
    await client.pull(into);
    expect(into.weight[5]).toBeCloseTo((start.weight[5] ?? 0) - 1, 6);
    expect(client.traffic.paths).toEqual(servers.map(() => ({ pull: path, push: path })));
  },
);

// holds: ps-checkpoints
test("restore: damaged checkpoints alone are a fault of the data, not missing ones", async () => {
  const { address, dataDirectory } = await startServer();
  const job = jobOn([address]);
  await openShards(job);
  await (await joinJob(job, 0)).initialize(ones);
  const damaged = await checkpointShards(job, "v0");
  // There is no other server, so that a copy is none that failed.
  expect(damaged).toMatchObject({ pieces: 1, uncopied: [] });
  writeFileSync(join(dataDirectory, "checkpoints", job.spec.jobId, "v0", "0.shard"), "");
  const again = { ...job, spec: { ...job.spec, attempt: 2, jobToken: randomBytes(32) } };
  const missing = { ...damaged, name: "v9" };
  for (const [checkpoints, code] of [
    [[damaged], "invalid_value"],
    [[damaged, missing], "not_found"],
  ] as const) {
    await expect(restoreShards(again, checkpoints)).rejects.toMatchObject({ code });
  }
});

// holds: ps-checkpoints
test("restore: pieces of two versions are refused where each shard reads one", async () => {
  const pair = await Promise.all([startServer(), startServer()]);
  const job = jobOn(pair.map(({ address }) => address));
  await openShards(job);
  const client = await joinJob(job, 0);
  await client.initialize(ones);
  await checkpointShards(job, "v0");
  await client.push(ones, terms);
  expect(await client.pull(tensors(() => 0))).toBe(1);
  const mixed = await checkpointShards(job, "v1");
  for (const { dataDirectory } of pair) {
    const pieceOf = (name: string) =>
      join(dataDirectory, "checkpoints", job.spec.jobId, name, "1.shard");
    writeFileSync(pieceOf("v1"), readFileSync(pieceOf("v0")));
  }
  const again = { ...job, spec: { ...job.spec, attempt: 2, jobToken: randomBytes(32) } };
  await expect(restoreShards(again, [mixed])).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(/pieces of the versions (0 and 1|1 and 0) in the shards/),
  });
});
