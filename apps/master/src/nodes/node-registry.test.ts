// holds: ops-report-count

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { Attachment } from "@heddle/node-agent/attachment";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { clusterService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { expect, test } from "vitest";
import { clusterToken, TestControl } from "../../test/test-cluster.ts";
import { testConfig } from "../../test/test-config.ts";
import { type AttachStream, NodeRegistry } from "./node-registry.ts";
import { ProgressBook } from "./progress/progress-book.ts";

const log = { info: () => {}, warn: () => {}, error: () => {} };

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
      register: {
        nodeId: "w",
        incarnation: "1",
        kind: "NODE_KIND_WORKER" as const,
        name: "w",
        address: "127.0.0.1:1",
        version: "1",
      },
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
