// holds: ops-report-count, scale-idle-streams

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Metadata, type ServerDuplexStream } from "@grpc/grpc-js";
import { eventually } from "@heddle/base/testing/eventually";
import type { Replica } from "@heddle/contracts/generated/heddle/v1/Replica";
import { Attachment } from "@heddle/node-agent/masters/attachment";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { clusterService, workerInferenceService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { expect, test } from "vitest";
import { clusterToken, TestControl } from "../../test/test-cluster.ts";
import { testConfig } from "../../test/test-config.ts";
import { type AttachStream, NodeRegistry } from "./node-registry.ts";
import { ProgressBook } from "./progress/progress-book.ts";

const log = { info: () => {}, warn: () => {}, error: () => {} };

test("link: a master opens the stream for requests once a worker has a replica", async () => {
  const own = { clusterToken, node: { role: "worker", name: "w" } } as const;
  const worker = await bindServer({ host: "127.0.0.1", port: 0, credentials: own });
  let sessions = 0;
  worker.server.addService(workerInferenceService, {
    session: (stream: ServerDuplexStream<unknown, unknown>) => {
      sessions += 1;
      stream.sendMetadata(new Metadata());
      stream.on("data", () => {}).once("end", () => stream.end());
    },
  });
  const credentials = { clusterToken, node: { role: "master", name: "master-1" } } as const;
  const { server, address } = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const folder = mkdtempSync(join(tmpdir(), "heddle-registry-"));
  const config = testConfig(folder, { fixedTimes: { nodeHeartbeatMs: 20 } });
  const progress = new ProgressBook();
  const registry = new NodeRegistry(config, credentials, new TestControl(), progress, log);
  server.addService(clusterService, { attach: (stream: AttachStream) => registry.attach(stream) });
  const replicas: Replica[] = [];
  const { address: at } = worker;
  const names = { nodeId: "w", incarnation: "1", name: "w", version: "1" };
  const attachment = new Attachment({
    master: address,
    credentials: own,
    register: () => ({ ...names, kind: "NODE_KIND_WORKER", address: at }),
    followed: new FollowedCluster(folder),
    heartbeat: () => ({ replicas }),
    log,
  });
  const heartbeats = () => registry.workers()[0]?.heartbeats ?? 0;
  await eventually(() => heartbeats() >= 5, "it reports");
  expect(sessions).toBe(0);
  replicas.push({ deployment: "m", phase: "loading" });
  await eventually(() => registry.workers()[0]?.link?.connected === true, "the stream stands");
  expect(sessions).toBe(1);
  await attachment.close();
  registry.close();
  await Promise.all([closeServer(server, 0), closeServer(worker.server, 0)]);
  rmSync(folder, { recursive: true });
});

test("attach: a node's count of reports increases over its attachments", async () => {
  const credentials = { clusterToken, node: { role: "master", name: "master-1" } } as const;
  const { server, address } = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const folder = mkdtempSync(join(tmpdir(), "heddle-registry-"));
  const config = testConfig(folder, { fixedTimes: { nodeHeartbeatMs: 20 } });
  const progress = new ProgressBook();
  const registry = new NodeRegistry(config, credentials, new TestControl(), progress, log);
  server.addService(clusterService, { attach: (stream: AttachStream) => registry.attach(stream) });
  const reports: number[] = [];
  registry.onChange(() => {
    for (const { heartbeats } of registry.workers()) reports.push(heartbeats);
  });
  const attach = () =>
    new Attachment({
      master: address,
      credentials: { clusterToken, node: { role: "worker", name: "w" } },
      register: () => ({
        nodeId: "w",
        incarnation: "1",
        kind: "NODE_KIND_WORKER" as const,
        name: "w",
        address: "127.0.0.1:1",
        version: "1",
      }),
      followed: new FollowedCluster(folder),
      heartbeat: () => ({ replicas: [] }),
      log,
    });
  const first = attach();
  await eventually(() => (reports.at(-1) ?? 0) >= 5, "it reports");
  await first.close();
  await eventually(() => registry.workers().length === 0, "it has left");
  const before = reports.length;
  const second = attach();
  await eventually(() => reports.length >= before + 5, "it reports again");
  await second.close();
  registry.close();
  await closeServer(server, 0);
  rmSync(folder, { recursive: true });
  expect(reports).toEqual(reports.toSorted((a, b) => a - b));
});
