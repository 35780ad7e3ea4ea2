// holds: scale-attach-timeouts

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServerDuplexStream } from "@grpc/grpc-js";
import { eventually } from "@heddle/base/testing/eventually";
import type { AttachReply } from "@heddle/contracts/generated/heddle/v1/AttachReply";
import type { NodeReport__Output } from "@heddle/contracts/generated/heddle/v1/NodeReport";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { clusterService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { expect, test } from "vitest";
import { Attachment } from "./attachment.ts";

type Stream = ServerDuplexStream<NodeReport__Output, AttachReply>;
const clusterToken = "a-token-of-sixteen-characters";
const log = { info: () => {}, warn: () => {}, error: () => {} };

test("attach: a busy master gets more time at each attempt, until it has answered", async () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-attachment-"));
  const credentials = { clusterToken, node: { role: "master", name: "m" } } as const;
  const { server, address } = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  let isBusy = true;
  const registered: Stream[] = [];
  const waitedMs: number[] = [];
  server.addService(clusterService, {
    attach: (stream: Stream) => {
      const beganMs = performance.now();
      stream.on("data", ({ register }: NodeReport__Output) => {
        if (register) registered.push(stream);
        if (register && !isBusy) stream.write({ heartbeatIntervalMs: 1_000, masterId: "m" });
      });
      stream.once("cancelled", () => waitedMs.push(performance.now() - beganMs));
      stream.once("end", () => stream.end());
    },
  });
  const attachment = new Attachment({
    master: address,
    credentials: { clusterToken, node: { role: "worker", name: "w" } },
    register: () => ({ nodeId: "w", kind: "NODE_KIND_WORKER", name: "w" }),
    followed: new FollowedCluster(folder),
    heartbeat: () => ({}),
    times: { registerTimeoutMs: 100 },
    log,
  });
  try {
    await eventually(() => waitedMs.length >= 4, "the node has given up four times");
    // The first may have waited less by the time that its connection took.
    expect(waitedMs[3]).toBeGreaterThan(500);
    isBusy = false;
    await eventually(() => attachment.isAttached, "the node is attached");
    const [attempts, timeouts] = [registered.length, waitedMs.length];
    registered.at(-1)?.end();
    await eventually(() => registered.length > attempts, "it attaches again");
    await eventually(() => attachment.isAttached, "without further attempts, but for slow ones");
    expect(registered.length - attempts).toBeLessThanOrEqual(1 + waitedMs.length - timeouts);
  } finally {
    await attachment.close();
    await closeServer(server, 0);
    rmSync(folder, { recursive: true });
  }
});
