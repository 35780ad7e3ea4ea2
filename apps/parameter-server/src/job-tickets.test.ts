// holds: sec-tickets

import { randomUUID } from "node:crypto";
import { Server, ServerCredentials, type ServerWritableStream } from "@grpc/grpc-js";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import { shardMethods } from "@heddle/parameters/shards/shard-methods";
import {
  checkpointShards,
  closeShards,
  openShards,
  restoreShards,
} from "@heddle/parameters/shards/shard-set";
import { encodeShard } from "@heddle/parameters/shards/shard-spec";
import {
  credentials,
  startServer,
  stopServers,
  temporaryFolder,
} from "@heddle/parameters/testing/server-processes";
import { createAuthority, requestCertificate, signNode } from "@heddle/pki/certificate-authority";
import type { NodeRole } from "@heddle/pki/node-name";
import { TlsIdentity } from "@heddle/pki/tls-identity";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { issueTicket, TicketVerifier } from "@heddle/rpc/job-ticket";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { RefusalCounts } from "./refusal-counts.ts";
import { ShardRegistry } from "./shard-registry.ts";
import { ShardsController } from "./shards.controller.ts";

import { closeClients, jobOn, joinJob, tensors } from "./testing/training-job.ts";

// The rights of a job's task at parameter servers, by the ticket that a master issued.

let servers: readonly string[] = [];
beforeAll(async () => {
  servers = (await Promise.all([startServer(), startServer()])).map(({ address }) => address);
});
afterEach(closeClients);
afterAll(stopServers);

const HOUR_MS = 3_600_000;
const terms = { weight: 1, learningRate: 1 };
const deadline = { deadlineMs: 10_000 };
const denied = { code: "permission_denied" };

/** A job whose calls carry a ticket for it, issued by a node that has these credentials. */
function ticketed(
  places: readonly string[],
  options: { by?: NodeCredentials; attempt?: number; jobId?: string; lastsMs?: number } = {},
) {
  const {
    by = credentials as NodeCredentials,
    attempt = 1,
    jobId = `job-${randomUUID()}`,
    lastsMs = HOUR_MS,
  } = options;
  const job = jobOn(places, { jobId, attempt });
  const issuedUnixMs = Date.now();
  const times = { issuedUnixMs, expiresUnixMs: issuedUnixMs + lastsMs };
  const ticket = issueTicket(by, { jobId, attempt, servers: places, ...times });
  const authority = by.tls?.material.authority;
  return { ...job, credentials: { ticket, authority } };
}

test("ticket: is enough to train, checkpoint and restore the task's own job", async () => {
  const job = ticketed(servers);
  await openShards(job);
  const worker = await joinJob(job, 0, { paths: ["grpc"] });
  await worker.initialize(tensors(() => 0));
  await worker.push(
    tensors(() => 1),
    terms,
  );
  const into = tensors(() => 0);
  expect(await worker.pull(into)).toBe(1);
  expect(into.weight[0]).toBe(-1);
  const checkpoint = await checkpointShards(job, "a1-r000001-s2");
  expect(checkpoint.uncopied).toEqual([]);
  await closeShards(job);
  const later = ticketed(servers, { jobId: job.spec.jobId, attempt: 2 });
  await restoreShards(later, [checkpoint]);
  const again = await joinJob(later, 0);
  expect(await again.pull(into)).toBe(1);
  await closeShards(later);
});

test("ticket: other jobs, attempts and servers are refused by every method", async () => {
  const other = jobOn(servers);
  await openShards(other);
  const later = { ...other.spec, jobId: `job-${randomUUID()}` };
  const thief = ticketed(servers, { jobId: later.jobId });
  const peer = new Peer(servers[0] ?? "", thief.credentials, "parameter-server");
  const { jobId } = other.spec;
  const id = { jobId, attempt: 1, shard: 0 };
  const push = { id, rank: 0, clock: 1, ...terms, sources: [], plan: "" };
  const attempt2 = { ...id, jobId: later.jobId, attempt: 2 };
  const calls = {
    open: () => peer.unary(shardMethods.open, encodeShard(other.spec, 0), deadline),
    openLater: () =>
      peer.unary(shardMethods.open, encodeShard({ ...later, attempt: 2 }, 0), deadline),
    status: () => peer.unary(shardMethods.status, id, deadline),
    statusLater: () => peer.unary(shardMethods.status, attempt2, deadline),
    close: () => peer.unary(shardMethods.close, id, deadline),
    changeMember: () => peer.unary(shardMethods.changeMember, { id, rank: 0 }, deadline),
    checkpoint: () => peer.unary(shardMethods.checkpoint, { id, name: "a1-r000001-s2" }, deadline),
    listCheckpoints: () => peer.unary(shardMethods.listCheckpoints, { jobId }, deadline),
    restore: () =>
      peer.unary(shardMethods.restore, { open: encodeShard(other.spec, 0), name: "x" }, deadline),
    push: () => peer.unary(shardMethods.push, push, deadline),
    addNorm: () => peer.unary(shardMethods.addNorm, { id, squares: 1 }, deadline),
    replicate: () =>
      peer.unary(shardMethods.replicate, { id, checkpoint: "x", source: servers[1] }, deadline),
    withoutId: () => peer.unary(shardMethods.push, { ...push, id: null }, deadline),
    pull: () => drain(peer.serverStream(shardMethods.pull, { id, rank: 0 }, thief.signal)),
    export: () => drain(peer.serverStream(shardMethods.exportShard, { id }, thief.signal)),
    releaseWorker: () => peer.unary(nodesOnly("ReleaseWorker"), { jobId: later.jobId }, deadline),
    forgetJob: () => peer.unary(nodesOnly("ForgetJob"), { jobId: later.jobId }, deadline),
    listCheckpointJobs: () => peer.unary(nodesOnly("ListCheckpointJobs"), {}, deadline),
  };
  for (const [name, call] of Object.entries(calls)) {
    await expect(call(), name).rejects.toMatchObject(denied);
  }
  peer.close();
  // The other job is unchanged.
  const worker = await joinJob(other, 0);
  await worker.initialize(tensors(() => 0));
  const elsewhere = ticketed(["127.0.0.1:1"]);
  const wrong = { ...elsewhere, spec: { ...elsewhere.spec, servers: servers.slice(0, 1) } };
  await expect(openShards(wrong)).rejects.toMatchObject(denied);
  await closeShards(other);
});

test("ticket: one of another cluster, a changed one and an expired one are refused", async () => {
  const foreign = ticketed(servers, { by: { clusterToken: "the token of another cluster" } });
  await expect(openShards(foreign)).rejects.toMatchObject({ code: "invalid_api_key" });
  const own = ticketed(servers);
  const [payload = "", mac = ""] = own.credentials.ticket.split(".");
  const claims = JSON.parse(Buffer.from(payload, "base64url").toString());
  const forged = Buffer.from(JSON.stringify({ ...claims, attempt: 9 })).toString("base64url");
  const changed = { ...own, credentials: { ticket: `${forged}.${mac}` } };
  await expect(openShards(changed)).rejects.toMatchObject({ code: "invalid_api_key" });
  for (const ticket of ["", ".", `${payload}.`, "x".repeat(5_000)]) {
    await expect(openShards({ ...own, credentials: { ticket } })).rejects.toMatchObject({
      code: "invalid_api_key",
    });
  }
  const late = ticketed(servers, { lastsMs: -1 });
  await expect(openShards(late)).rejects.toThrow("has expired");
});

test("ticket: to an address that a job gives, a server shows only the job's ticket", async () => {
  const shown: string[] = [];
  const trap = new Server();
  trap.addService(parameterShardsService, {
    export: (call: ServerWritableStream<unknown, unknown>) => {
      shown.push(String(call.metadata.get("authorization")[0]));
      call.end();
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    trap.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  const job = ticketed(servers);
  const peer = new Peer(servers[0] ?? "", job.credentials, "parameter-server");
  const source = `127.0.0.1:${port}`;
  const id = { jobId: job.spec.jobId, attempt: 1, shard: 0 };
  const copy = { id, checkpoint: "a1-r000001-s2", source };
  await expect(peer.unary(shardMethods.replicate, copy, deadline)).rejects.toThrow();
  const open = encodeShard(job.spec, 0);
  const restore = { open, name: "a1-r000001-s2", sources: [source], pieces: 1 };
  await expect(peer.unary(shardMethods.restore, restore, deadline)).rejects.toThrow();
  expect(shown).toEqual([`Job ${job.credentials.ticket}`, `Job ${job.credentials.ticket}`]);
  peer.close();
  await closeServer(trap, 0);
});

test("ticket: under TLS a task needs no node key, and a server none of a task", async () => {
  const authority = await createAuthority();
  const nodeOf = async (role: NodeRole): Promise<NodeCredentials> => {
    const { privateKey, csr } = await requestCertificate();
    const certificate = await signNode(authority, csr, { role, name: `${role}-1` }, HOUR_MS);
    const material = { authority: authority.certificate, certificate, privateKey };
    return { clusterToken: "", tls: new TlsIdentity(material) };
  };
  const own = await nodeOf("parameter-server");
  const worker = await nodeOf("worker");
  const tickets = new TicketVerifier(own);
  const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials: own, tickets });
  const shards = new ShardRegistry({
    credentials: own,
    host: "127.0.0.1",
    refusals: new RefusalCounts(),
  });
  const data = temporaryFolder();
  const followed = new FollowedCluster(data);
  const node = { credentials: own, tickets, followed, address: bound.address };
  const options = { flags: { dataDirectory: data } };
  await serveControllers(
    {
      module: TestModule,
      controllers: [ShardsController],
      providers: [
        { provide: NodeAgent, useValue: { ...node, options } },
        { provide: ShardRegistry, useValue: shards },
      ],
    },
    bound.server,
  );
  try {
    const job = ticketed([bound.address], { by: await nodeOf("master") });
    await openShards(job);
    const client = await joinJob(job, 0, { paths: ["grpc"] });
    await client.initialize(tensors(() => 0));
    await client.push(
      tensors(() => 1),
      terms,
    );
    const into = tensors(() => 0);
    expect(await client.pull(into)).toBe(1);
    expect(client.traffic.paths).toEqual([{ pull: "grpc", push: "grpc" }]);
    // A worker's certificate grants nothing, by itself or with a ticket for a job that it must not
    // use.
    const byNode = { ...job, credentials: worker };
    await expect(openShards(byNode)).rejects.toMatchObject(denied);
    // Nor does another server's: it reads and changes only what its ticket names.
    const peer = new Peer(bound.address, await nodeOf("parameter-server"), "parameter-server");
    const id = { jobId: job.spec.jobId, attempt: 1, shard: 0 };
    const exported = drain(peer.serverStream(shardMethods.exportShard, { id }, job.signal));
    await expect(exported).rejects.toMatchObject(denied);
    const norm = peer.unary(shardMethods.addNorm, { id, squares: 1 }, deadline);
    await expect(norm).rejects.toMatchObject(denied);
    peer.close();
    for (const by of [worker, await nodeOf("parameter-server")]) {
      const forged = ticketed([bound.address], { by });
      await expect(openShards(forged)).rejects.toMatchObject({ code: "invalid_api_key" });
    }
  } finally {
    await closeClients();
    await shards.closeAll();
    await closeServer(bound.server, 0);
  }
});

class TestModule {}

async function drain(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream);
}

/** A call for masters only. */
function nodesOnly(name: string) {
  return method<object, object, object, object>(parameterShardsService, name);
}
