// holds: ps-boot, ps-unauthenticated

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, credentials } from "@grpc/grpc-js";
import { eventually } from "@heddle/base/testing/eventually";
import { startArguments } from "@heddle/base/testing/programs";
import type { HealthCheckResponse__Output } from "@heddle/contracts/generated/grpc/health/v1/HealthCheckResponse";
import { dataHelloFrame } from "@heddle/parameters/data-plane/data-frames";
import { openShards, shardStatuses } from "@heddle/parameters/shards/shard-set";
import { healthService } from "@heddle/rpc/proto";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { jobOn } from "./testing/training-job.ts";

// The parameter server and a master as processes on loopback.

/** Other apps run as processes, and are never imported. */
const MASTER = startArguments("master");
const PROGRAM = startArguments("parameter-server");
const WAIT_MS = 100_000;

/** A process that logs JSON lines; `ready` is its start message. */
class Driven {
  output = "";
  readonly child: ChildProcess;
  readonly ended: Promise<unknown[]>;

  constructor(program: readonly string[], args: readonly string[]) {
    this.child = spawn(process.execPath, [...program, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.ended = once(this.child, "exit");
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on("data", (text) => {
        this.output += text;
      });
    }
  }

  async line(message: string, count = 1): Promise<Record<string, string>> {
    const lines = () =>
      this.output
        .split("\n")
        .slice(0, -1)
        .filter((text) => text.includes(`"msg":"${message}"`));
    await eventually(
      () => lines().length >= count,
      () => `${message}: ${this.output}`,
    );
    return JSON.parse(lines()[count - 1] ?? "{}") as Record<string, string>;
  }
}

let data = "";
let running: Driven[] = [];

beforeEach(() => {
  data = mkdtempSync(join(tmpdir(), "heddle-ps-"));
  writeFileSync(join(data, "token"), "a-token-for-this-test-only\n", { mode: 0o600 });
});
afterEach(async () => {
  for (const { child, ended } of running) {
    child.kill("SIGKILL");
    await ended;
  }
  running = [];
  rmSync(data, { recursive: true, force: true });
});

function start(program: readonly string[], args: readonly string[]): Driven {
  const driven = new Driven(program, args);
  running.push(driven);
  return driven;
}

async function startMaster(grpcPort = "0") {
  const driven = start(MASTER, [
    "--data",
    join(data, "master"),
    "--http-port",
    "0",
    "--grpc-port",
    grpcPort,
    "--cluster-token-file",
    join(data, "token"),
    "--bootstrap-key-file",
    join(data, "key"),
  ]);
  const { http = "", grpc = "" } = await driven.line("ready");
  const nodes = async () => {
    const key = readFileSync(join(data, "key"), "utf8").trim();
    const headers = { authorization: `Bearer ${key}` };
    const reply = await fetch(`${http}/api/v1/workers`, { headers });
    return ((await reply.json()) as { data: Record<string, unknown>[] }).data;
  };
  return { driven, grpc, http, nodes };
}

function startServer(masters: string, ...more: string[]): Driven {
  return start(PROGRAM, [
    "--data",
    join(data, "ps"),
    "--name",
    "ps-1",
    "--masters",
    masters,
    "--cluster-token-file",
    join(data, "token"),
    ...more,
  ]);
}

function health(address: string): Promise<string> {
  const client = new Client(address, credentials.createInsecure());
  const check = healthService["Check"];
  if (!check) throw new Error("the health service has no Check");
  return new Promise<string>((resolve, reject) => {
    const deadline = Date.now() + WAIT_MS;
    client.makeUnaryRequest(
      check.path,
      check.requestSerialize,
      check.responseDeserialize as (bytes: Buffer) => HealthCheckResponse__Output,
      { service: "" },
      { deadline },
      (error, reply) => (error ? reject(error) : resolve(String(reply?.status))),
    );
  }).finally(() => client.close());
}

describe("a parameter server", () => {
  it("registers with its master, answers gRPC health, leaves at SIGTERM with 0", async () => {
    const master = await startMaster();
    const server = startServer(master.grpc);
    const { nodeId, grpc = "", metrics = "" } = await server.line("ready");
    await eventually(async () => (await master.nodes()).length === 1, "it is attached");
    const attached = 'heddle_node_attached_masters{service="parameter-server"} 1';
    expect(await (await fetch(metrics)).text()).toContain(attached);
    expect((await master.nodes())[0]).toMatchObject({
      id: nodeId,
      kind: "parameter-server",
      name: "ps-1",
      address: grpc,
      replicas: [],
    });
    await eventually(
      async () => Number((await master.nodes())[0]?.["memory_used_bytes"]) > 0,
      "reports",
    );
    expect(await health(grpc)).toBe("SERVING");
    server.child.kill("SIGTERM");
    expect(await server.ended).toEqual([0, null]);
    await eventually(
      async () => (await master.nodes()).every((node) => !node["attached"]),
      "it has left",
    );
  });

  it("reports its refusals in its master's /metrics, by reason", async () => {
    const master = await startMaster();
    const server = startServer(master.grpc);
    const { grpc = "" } = await server.line("ready");
    // It drops the shards that it has when it first learns of a cluster.
    await server.line("attached");
    const clusterToken = readFileSync(join(data, "token"), "utf8").trim();
    const job = jobOn([grpc], { attempt: 2 });
    const own = {
      ...job,
      credentials: { clusterToken, node: { role: "worker", name: "w" } },
    } as const;
    await openShards(own);
    // A call without the cluster token, and one of an attempt that has ended.
    const others = { ...own, credentials: { clusterToken: "another" } };
    await expect(shardStatuses(others)).rejects.toMatchObject({ code: "invalid_api_key" });
    const before = { ...own, spec: { ...own.spec, attempt: 1 } };
    await expect(shardStatuses(before)).rejects.toMatchObject({ code: "precondition_failed" });
    // A data connection without the job's token, and one that sends no request.
    const [status] = await shardStatuses(own);
    const path = /^unix:(.+)$/.exec(status?.dataSocket ?? "")?.[1] ?? "";
    const hellos = [dataHelloFrame(randomBytes(32)), dataHelloFrame(job.spec.jobToken)];
    for (const hello of hellos) {
      const socket = connect(path);
      socket.end(Buffer.concat([hello, Buffer.from([3, 0, 0, 0]), Buffer.from("{]}")]));
      // Closed with unread bytes, it may also arrive as a reset.
      socket.on("error", () => undefined).resume();
      await new Promise<void>((resolve) => socket.once("close", () => resolve()));
    }
    // A client with another token may connect more than once.
    const counted = {
      unauthenticated: expect.toSatisfy((count: number) => count >= 2),
      invalid: 1,
      stale: 1,
    };
    await vi.waitFor(
      async () => {
        const text = await (await fetch(`${master.http}/metrics`)).text();
        const line =
          /^heddle_parameter_server_refusals_total\{.*name="ps-1",reason="(\w+)".*\} (\d+)$/gm;
        const shown = [...text.matchAll(line)].map(([, why, count]) => [why, Number(count)]);
        expect(Object.fromEntries(shown)).toEqual(counted);
      },
      { timeout: 30_000, interval: 100 },
    );
  });

  it("finds its master again after a kill -9, under the same id", async () => {
    const master = await startMaster();
    const server = startServer(master.grpc);
    const { nodeId, grpc = "" } = await server.line("ready");
    await server.line("attached");
    master.driven.child.kill("SIGKILL");
    await server.line("not attached to a master, retrying");
    expect(await health(grpc)).toBe("SERVING");
    const next = await startMaster(master.grpc.split(":")[1]);
    await server.line("attached", 2);
    await eventually(
      async () => (await next.nodes())[0]?.["id"] === nodeId,
      "it is attached again",
    );
  });

  it("keeps its id over restarts, and waits for a master that is not there yet", async () => {
    const first = startServer("127.0.0.1:1");
    const { nodeId } = await first.line("ready");
    await first.line("not attached to a master, retrying");
    first.child.kill("SIGTERM");
    expect(await first.ended).toEqual([0, null]);
    const again = startServer("127.0.0.1:1");
    expect((await again.line("ready"))["nodeId"]).toBe(nodeId);
  });

  it("with another cluster's token is refused, and logs why", async () => {
    const master = await startMaster();
    writeFileSync(join(data, "other"), "the-token-of-another-cluster\n", { mode: 0o600 });
    const server = startServer(master.grpc, "--cluster-token-file", join(data, "other"));
    const { error } = await server.line("not attached to a master, retrying");
    expect(error).toMatch(/token/);
    expect(await master.nodes()).toEqual([]);
  });
});

describe("invalid flags end it with 2 and one line of advice", () => {
  const token = () => ["--cluster-token-file", join(data, "token")];
  it.each<[string, () => string[], RegExp]>([
    ["none", () => [], /give --masters HOST:PORT/],
    ["no masters", () => ["--data", data, ...token()], /give --masters HOST:PORT/],
    [
      "a master without a port",
      () => ["--data", data, "--masters", "here", ...token()],
      /HOST:PORT with a port from 1 to 65535, not here/,
    ],
    [
      "no token",
      () => ["--data", data, "--masters", "127.0.0.1:1"],
      /give --cluster-token-file FILE/,
    ],
    ["an unknown one", () => ["--weave"], /--weave.*The flags are --data/],
    [
      "a bad port",
      () => ["--data", data, "--masters", "127.0.0.1:1", "--grpc-port", "x", ...token()],
      /--grpc-port takes a whole number/,
    ],
  ])("%s", async (_what, args, message) => {
    const server = start(PROGRAM, args());
    expect(await server.ended).toEqual([2, null]);
    expect(server.output.trim().split("\n")).toHaveLength(1);
    expect(server.output).toMatch(message);
  });
});
