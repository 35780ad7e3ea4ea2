import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ParameterServerClient } from "@heddle/parameters/parameter-server-client";
import {
  checkpointShards,
  closeShards,
  openShards,
  restoreShards,
  type ShardSetCheckpoint,
} from "@heddle/parameters/shards/shard-set";
import {
  type ServerProcess,
  startServer,
  stopServers,
} from "@heddle/parameters/testing/server-processes";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import { closeClients, jobOn, joinJob, tensors } from "./testing/training-job.ts";

// Servers that die and disks that corrupt data: real processes, killed with kill -9.

afterEach(closeClients);
afterAll(stopServers);

type Tensors = ReturnType<typeof tensors>;
const terms = { weight: 1, learningRate: 0.1 };
const ADAM = { kind: "adam", beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0 } as const;

/** Updates number `from` to `to` by one worker whose part depends on what it pulled. */
async function train(client: ParameterServerClient, from: number, to: number): Promise<Tensors> {
  const own = tensors(() => 0);
  expect(await client.pull(own)).toBe(from - 1);
  for (let update = from; update <= to; update++) {
    const part = {
      weight: own.weight.map((value, i) => value - Math.cos(i)),
      bias: own.bias.map((value, i) => value - Math.cos(i)),
      gain: own.gain.map((value, i) => value - Math.cos(i)),
    };
    await client.push(part, terms);
    expect(await client.pull(own)).toBe(update);
  }
  return own;
}

const start = () => tensors((at) => Math.sin(at));

/** The result of ten updates on two shards without any fault, on whatever servers. */
let whole: Promise<Tensors> | undefined;

async function undisturbed(servers: readonly string[]): Promise<Tensors> {
  const job = jobOn(servers, { optimizer: ADAM, maxGradientNorm: 3 });
  await openShards(job);
  const client = await joinJob(job, 0);
  await client.initialize(start());
  return train(client, 1, 10);
}

const addresses = (servers: readonly ServerProcess[]) => servers.map(({ address }) => address);
/** Started by an earlier test, each of which has jobs of its own. */
let kept: ServerProcess[] = [];

/** `count` running servers. */
async function runningServers(count: number): Promise<readonly ServerProcess[]> {
  const running = kept.filter(({ isRunning }) => isRunning);
  const missing = Array.from({ length: Math.max(0, count - running.length) }, () => startServer());
  kept = [...running, ...(await Promise.all(missing))];
  return kept.slice(0, count);
}

/** A server on the data directory of a killed one, or on a new one. */
async function replacement(dataDirectory?: string): Promise<string> {
  const server = await startServer(dataDirectory);
  kept.push(server);
  return server.address;
}

/** Ten updates; new servers continue after the fourth. Returns the parameters. */
async function interrupted(
  first: readonly ServerProcess[],
  disaster: (jobId: string) => Promise<readonly string[]>,
) {
  const job = jobOn(addresses(first), { optimizer: ADAM, maxGradientNorm: 3 });
  await openShards(job);
  const client = await joinJob(job, 0, { timeoutMs: 300 });
  await client.initialize(start());
  await train(client, 1, 2);
  const checkpoints: ShardSetCheckpoint[] = [await checkpointShards(job, "v2")];
  await train(client, 3, 4);
  checkpoints.unshift(await checkpointShards(job, "v4"));
  await train(client, 5, 7);
  const servers = await disaster(job.spec.jobId);
  const gone = client.push(start(), terms);
  await expect(gone).rejects.toMatchObject({
    code: "shard_unavailable",
  });
  const again = jobOn(servers, { ...job.spec, servers, attempt: 2, jobToken: randomBytes(32) });
  const { used, refused } = await restoreShards(again, checkpoints);
  const second = await joinJob(again, 0);
  expect(second.clock).toBe(used.version);
  return { used, refused, end: await train(second, used.version + 1, 10) };
}

// holds: ps-killed
test("server: a killed one is replaced on its disk from the last checkpoint", async () => {
  const servers = await runningServers(2);
  whole ??= undisturbed(addresses(servers));
  const expected = await whole;
  const { used, end } = await interrupted(servers, async () => {
    await servers[1]?.kill();
    return [servers[0]?.address ?? "", await replacement(servers[1]?.dataDirectory)];
  });
  expect(used.name).toBe("v4");
  expect(end).toEqual(expected);
});

// holds: ps-killed
test("server: one that is lost with its disk is restored from its neighbour's copy", async () => {
  const servers = await runningServers(2);
  whole ??= undisturbed(addresses(servers));
  const expected = await whole;
  const { used, end } = await interrupted(servers, async () => {
    await servers[1]?.kill();
    rmSync(join(servers[1]?.dataDirectory ?? "", "checkpoints"), { recursive: true });
    return [servers[0]?.address ?? "", await replacement()];
  });
  expect(used.name).toBe("v4");
  expect(end).toEqual(expected);
});

// holds: ps-checkpoints
test.each([3, 4])("checkpoint: one of two shards is restored on %i", async (shards) => {
  const servers = await runningServers(shards);
  whole ??= undisturbed(addresses(servers).slice(0, 2));
  const expected = await whole;
  const { used, end } = await interrupted(servers.slice(0, 2), async () => {
    await servers[0]?.kill();
    return [await replacement(servers[0]?.dataDirectory), ...addresses(servers.slice(1))];
  });
  expect(used).toMatchObject({ name: "v4", version: 4, pieces: 2 });
  // The norm is summed over other pieces, so that its last bits differ.
  for (const name of ["weight", "bias", "gain"] as const) {
    const differences = end[name].map((value, i) => Math.abs(value - (expected[name][i] ?? 0)));
    expect(Math.max(...differences)).toBeLessThan(1e-6);
  }
});

const flipped = (bytes: Buffer): Buffer => {
  bytes.writeUInt8(bytes.readUInt8(9000) ^ 4, 9000);
  return bytes;
};

// holds: ps-checkpoints
test.each([
  ["a flipped bit", flipped],
  ["a lost end", (bytes: Buffer) => bytes.subarray(0, bytes.length - 5000)],
  ["nothing", () => Buffer.alloc(0)],
])("checkpoint: one with %s is detected, and the previous one is used", async (_what, damage) => {
  const servers = await runningServers(2);
  whole ??= undisturbed(addresses(servers));
  const expected = await whole;
  const { used, refused, end } = await interrupted(servers, async (jobId) => {
    await servers[0]?.kill();
    for (const { dataDirectory } of servers) {
      const piece = join(dataDirectory, "checkpoints", jobId, "v4", "0.shard");
      writeFileSync(piece, damage(readFileSync(piece)));
    }
    return [await replacement(servers[0]?.dataDirectory), servers[1]?.address ?? ""];
  });
  expect(used).toMatchObject({ name: "v2", version: 2 });
  expect(refused[0]).toMatch(/^v4: piece 0 of checkpoint v4 cannot be used: .*(corrupt|shorter)/);
  expect(end).toEqual(expected);
});

// holds: ps-checkpoints
test.each([
  // The comparison that must find it: no other one may hide that it is missing.
  [1, "a shard"],
  [2, "the shards"],
  [3, "the shards"],
])("checkpoint: pieces of two versions are detected on %i shards, in %s", async (shards, where) => {
  const servers = await runningServers(Math.max(2, shards));
  whole ??= undisturbed(addresses(servers).slice(0, 2));
  const { used, refused } = await interrupted(servers.slice(0, 2), async (jobId) => {
    await servers[0]?.kill();
    for (const { dataDirectory } of servers.slice(0, 2)) {
      const pieceOf = (name: string) => join(dataDirectory, "checkpoints", jobId, name, "1.shard");
      writeFileSync(pieceOf("v4"), readFileSync(pieceOf("v2")));
    }
    const restored = await replacement(servers[0]?.dataDirectory);
    return [restored, ...addresses(servers.slice(1))].slice(0, shards);
  });
  expect(used).toMatchObject({ name: "v2", version: 2 });
  expect(refused).toEqual([
    expect.stringMatching(`^v4: .*has pieces of the versions (4 and 2|2 and 4) in ${where}`),
  ]);
});

// holds: ps-many-shards
test("checkpoint: a server with many shards writes each and keeps the latest", async () => {
  const [server] = await runningServers(1);
  const shards = 12;
  const job = jobOn(Array.from({ length: shards }, () => server?.address ?? ""));
  await openShards(job);
  await (await joinJob(job, 0)).initialize(start());
  const folder = join(server?.dataDirectory ?? "", "checkpoints", job.spec.jobId);
  const names = Array.from({ length: 8 }, (_, i) => `v${i}`);
  for (const [i, name] of names.entries()) {
    await checkpointShards(job, name, 2);
    const kept = names.slice(Math.max(0, i - 1), i + 1);
    expect(readdirSync(folder).sort()).toEqual(kept.sort());
    for (const each of kept) expect(readdirSync(join(folder, each))).toHaveLength(shards);
  }
});

// holds: ps-many-shards
test("memory: of closed shards is returned to the system", async () => {
  // One without other shards, which might close meanwhile.
  const server = await startServer();
  const addressSpaceGiB = () => {
    const status = readFileSync(`/proc/${server.pid}/status`, "utf8");
    return Number(/VmSize:\s+(\d+) kB/.exec(status)?.[1]) / 1024 ** 2;
  };
  // Each WebAssembly memory reserves at least 4 GiB of addresses, whatever its use.
  const before = addressSpaceGiB();
  const large = [{ name: "weight", shape: [8_000_000], type: "f32" }] as const;
  for (const attempt of [1, 2]) {
    const job = jobOn([server.address, server.address], { attempt, parameters: large });
    await openShards(job);
    expect(addressSpaceGiB()).toBeGreaterThan(before + 8);
    await closeShards(job);
  }
  await vi.waitUntil(() => addressSpaceGiB() < before + 4, { timeout: 60_000, interval: 100 });
});

test("checkpoint: without a usable one the error lists those that were tried", async () => {
  const job = jobOn(addresses(await runningServers(1)));
  await expect(restoreShards(job, [])).rejects.toThrow(/no checkpoint .* there is none/);
  const missing = { name: "v9", version: 9, pieces: 1, servers: job.spec.servers, bytes: 0 };
  const restore = restoreShards(job, [missing]);
  await expect(restore).rejects.toMatchObject({ code: "not_found", message: /v9: piece 0/ });
  // A server that does not answer may have it.
  const away = restoreShards({ ...job, lost: ["127.0.0.1:9"] }, [missing]);
  await expect(away).rejects.toMatchObject({ code: "shard_unavailable", message: /v9: piece 0/ });
});

test("attempt: continues with open shards; closed ones start from zeros", async () => {
  const [server] = await runningServers(1);
  const job = jobOn([server?.address ?? ""]);
  await openShards(job);
  const client = await joinJob(job, 0);
  await client.initialize(start());
  await train(client, 1, 3);
  // The next attempt continues with the shards that are left, with other clients.
  const later = { ...job, spec: { ...job.spec, attempt: 2, jobToken: randomBytes(32) } };
  expect(await openShards(later)).toBe(3);
  await train(await joinJob(later, 0), 4, 5);
  await closeShards(later);
  expect(await openShards(later)).toBe(0);
});
