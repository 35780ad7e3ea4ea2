// holds: scale-idle-streams

import { setTimeout as delay } from "node:timers/promises";
import type { ServerDuplexStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import type { LogAck } from "@heddle/contracts/generated/heddle/v1/LogAck";
import type { LogChunk__Output } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import { taskLogsService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { toStatus } from "@heddle/rpc/status";
import { expect, test } from "vitest";
import { LogShipper, type ShippedLog } from "./log-shipper.ts";

const clusterToken = "a-token-of-sixteen-characters";

test("shipping: a worker with a log connects at once, and asks only for a long one", async () => {
  const credentials = { clusterToken, node: { role: "master", name: "m" } } as const;
  const { server, address } = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  let streams = 0;
  let text = "";
  const pieces: (readonly number[])[] = [];
  server.addService(taskLogsService, {
    ship: (stream: ServerDuplexStream<LogChunk__Output, LogAck>) => {
      streams += 1;
      stream.on("data", ({ file, offset, data, complete }: LogChunk__Output) => {
        text += data.toString();
        pieces.push([offset, data.byteLength]);
        stream.write({ file, durable: offset + data.byteLength, complete });
      });
      stream.once("end", () => stream.end());
    },
  });
  const logs: ShippedLog[] = [];
  const shipped: string[] = [];
  const shipper = new LogShipper(
    {
      master: address,
      credentials: { clusterToken, node: { role: "worker", name: "w" } },
      nodeId: "w",
      whileRemoved: () => Promise.resolve(),
      log: { info() {}, warn() {}, error() {} },
    },
    {
      logs: () => logs,
      onDurable: () => {},
      onShipped: (master, { stream }) => shipped.push(`${master} ${stream}`),
    },
  );
  try {
    await delay(1_200);
    expect(streams).toBe(0);
    const add = (stream: string, data: Buffer) => {
      const read = async (from: number) => {
        return { offset: from, data: data.subarray(from), times: [], complete: true };
      };
      const id = { jobId: "job_A", attempt: 1, rank: 0, incarnation: 0 };
      const log = { end: data.byteLength, complete: true, read };
      logs.push({ id, grant: "", stream, log });
      shipper.wake();
    };
    add("stdout", Buffer.from("line\n"));
    await eventually(() => shipped.length > 0, "the log is shipped");
    expect([streams, text, shipped]).toEqual([1, "line\n", [`${address} stdout`]]);
    add("stderr", Buffer.alloc(5_000));
    await eventually(() => shipped.length > 1, "the long log is shipped");
    expect(pieces).toEqual([
      [0, 5],
      [0, 0],
      [0, 5_000],
    ]);
  } finally {
    await shipper.close();
    await closeServer(server, 0);
  }
});

test("shipping: a master that refuses the metrics gets the output", async () => {
  const credentials = { clusterToken, node: { role: "master", name: "m" } } as const;
  const { server, address } = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  server.addService(taskLogsService, {
    ship: (stream: ServerDuplexStream<LogChunk__Output, LogAck>) => {
      stream.on("data", ({ file, offset, data, complete }: LogChunk__Output) => {
        const refused = new AppError("invalid_value", "it names no log");
        if (file?.stream === "metrics") stream.emit("error", toStatus(refused));
        else stream.write({ file, durable: offset + data.byteLength, complete });
      });
      stream.on("error", () => {});
      stream.once("end", () => stream.end());
    },
  });
  const data = Buffer.from("line\n");
  const read = async (offset: number) => {
    return { offset, data: data.subarray(offset), times: [], complete: true };
  };
  const logs = ["metrics", "stdout", "stderr"].map((stream) => ({
    id: { jobId: "job_A", attempt: 1, rank: 0, incarnation: 0 },
    grant: "",
    stream,
    log: { end: data.byteLength, complete: true, read },
  }));
  const shipped = new Set<string>();
  const shipper = new LogShipper(
    {
      master: address,
      credentials: { clusterToken, node: { role: "worker", name: "w" } },
      nodeId: "w",
      whileRemoved: () => Promise.resolve(),
      log: { info() {}, warn() {}, error() {} },
    },
    {
      logs: () => logs,
      onDurable: () => {},
      onShipped: (_master, { stream }) => shipped.add(stream),
    },
  );
  try {
    await eventually(() => shipped.size === 2, "the output is shipped");
    expect([...shipped].toSorted()).toEqual(["stderr", "stdout"]);
  } finally {
    await shipper.close();
    await closeServer(server, 0);
  }
});
