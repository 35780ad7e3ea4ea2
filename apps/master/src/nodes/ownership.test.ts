// holds: sec-ownership

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { LogAck__Output } from "@heddle/contracts/generated/heddle/v1/LogAck";
import { PlannedCluster } from "@heddle/control/jobs/testing/planned-cluster";
import { jobId } from "@heddle/control/jobs/testing/specs";
import { createLogger } from "@heddle/observability/logger";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { Peer } from "@heddle/rpc/peer";
import { attachMethod, readArtifactMethod, shipLogsMethod } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { fromStatus } from "@heddle/rpc/status";
import { afterEach, beforeEach, expect, test } from "vitest";
import { clusterToken, TestControl } from "../../test/test-cluster.ts";
import { testConfig } from "../../test/test-config.ts";
import { SECRETS, TEST_PEPPER } from "../../test/test-master.ts";
import { configModule } from "../config/config.module.ts";
import { controlPlaneModule } from "../control-plane/control-plane.module.ts";
import { LogStore } from "../task-output/log-store.ts";
import { TaskOutputModule } from "../task-output/task-output.module.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "./node-directory.ts";
import { NodesModule } from "./nodes.module.ts";
import { ProgressModule } from "./progress/progress.module.ts";
import { ProgressBook } from "./progress/progress-book.ts";

// Two workers, a and b; the job's one task runs on a, and b claims it.

const TASK = { jobId: jobId(1), attempt: 1, rank: 0, incarnation: 0 };
const LOG = { jobId: TASK.jobId, attempt: 1, rank: 0, stream: "stdout" } as const;

let jobs: PlannedCluster;
let progress: ProgressBook;
let store: LogStore;
let address: string;
let directory: NodeDirectory;
const closing: (() => unknown)[] = [];

class OwnershipModule {}

beforeEach(async () => {
  jobs = new PlannedCluster();
  jobs.join("a");
  jobs.submit(1);
  jobs.run(1);
  jobs.join("b");
  const control = Object.assign(new TestControl(), { state: jobs.control.state });
  const credentials = { clusterToken };
  const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  address = bound.address;
  const folder = mkdtempSync(join(tmpdir(), "heddle-ownership-"));
  const config = testConfig(folder, { fixedTimes: { nodeHeartbeatMs: 10_000 } });
  const open = { control, pepper: TEST_PEPPER, credentials, authorityHash: undefined };
  const imports = [
    configModule(config, createLogger({ service: "test", level: "silent" })),
    controlPlaneModule(open),
    NodesModule,
    ProgressModule,
    TaskOutputModule,
  ];
  const app = await serveControllers({ module: OwnershipModule, imports }, bound.server);
  const part = { strict: false };
  directory = app.get(NODE_DIRECTORY, part);
  progress = app.get(ProgressBook, part);
  store = app.get(LogStore, part);
  closing.push(
    () => rmSync(folder, { recursive: true }),
    () => closeServer(bound.server, 0),
    () => app.close(),
  );
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

function peerOf(name: string): Peer {
  const peer = new Peer(address, { clusterToken, node: { role: "worker", name } });
  closing.push(() => peer.close());
  return peer;
}

/** The master's answer to one chunk: `kept`, `fenced`, or an error code. */
function ship(name: string, nodeId: string, task: object = TASK, grant = ""): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const stream = peerOf(name).duplex(shipLogsMethod);
  stream.on("data", ({ fenced }: LogAck__Output) => resolve(fenced ? "fenced" : "kept"));
  stream.on("error", (error) => resolve(fromStatus(error, "the master").code));
  const file = { task: { ...TASK, ...task }, stream: "stdout" };
  stream.write({ file, offset: 0, data: Buffer.from(`of ${name}\n`), nodeId, grant });
  return promise;
}

test("logs: a worker ships no log of another worker's task", async () => {
  expect(await ship("b", "a")).toBe("permission_denied");
  expect(await ship("b", "b")).toBe("fenced");
  expect(await ship("b", "unknown")).toBe("fenced");
  expect(await store.read(LOG, 0, 100)).toBeUndefined();
  expect(await ship("a", "a")).toBe("kept");
  expect(`${(await store.read(LOG, 0, 100))?.data}`).toBe("of a\n");
});

test("logs: a future attempt or incarnation is refused", async () => {
  for (const ahead of [{ attempt: 2 }, { incarnation: 1 }]) {
    expect(await ship("b", "b", ahead)).toBe("unavailable");
    expect(await store.read({ ...LOG, ...ahead }, 0, 100)).toBeUndefined();
  }
});

/** A stale task: of a replaced attempt or incarnation, or of a removed job. */
const EARLIER = [
  { ...TASK, attempt: 0 },
  { ...TASK, rank: 1 },
  { ...TASK, jobId: jobId(9) },
];

test("logs: those of past attempts and removed jobs belong to their worker", async () => {
  for (const task of EARLIER) {
    const log = { ...LOG, ...task };
    const grant = SECRETS.logGrant(task, "a");
    const others = { ...task, rank: task.rank + 1 };
    for (const wrong of ["", grant.replace(/^./, "x"), SECRETS.logGrant(others, "b"), grant]) {
      expect(await ship("b", "b", task, wrong)).toBe("fenced");
    }
    expect(await ship("a", "a", task, SECRETS.logGrant(others, "a"))).toBe("fenced");
    expect(await store.read(log, 0, 100)).toBeUndefined();
    expect(await ship("a", "a", task, grant)).toBe("kept");
    expect(`${(await store.read(log, 0, 100))?.data}`).toBe("of a\n");
  }
});

test("logs: a task's ticket is not enough once the task has moved", async () => {
  expect(await ship("b", "b", TASK, SECRETS.logGrant(TASK, "b"))).toBe("fenced");
});

/** Attaches as the worker and reports a step of the job's task. */
function report(name: string, step: number): void {
  const stream = peerOf(name).duplex(attachMethod);
  stream.on("data", () => undefined);
  stream.on("error", () => undefined);
  const common = { nodeId: name, incarnation: "1", address: "127.0.0.1:1", version: "1" };
  stream.write({ register: { ...common, kind: "NODE_KIND_WORKER", name } });
  const line = JSON.stringify({ step });
  const status = { task: TASK, phase: "running", progress: { line, atUnixMs: 1_000 * step } };
  stream.write({ heartbeat: { cpuPercent: step, tasks: [status] } });
}

test("progress: a worker reports none of another worker's task", async () => {
  const seen: unknown[] = [];
  progress.onChange(() => seen.push(progress.of(jobs.job(1))?.latest.step));
  report("b", 99);
  await eventually(() => directory.nodes().some(({ cpuPercent }) => cpuPercent === 99));
  report("a", 7);
  await eventually(() => seen.length > 0);
  expect(seen).toEqual([7]);
});

test("artifacts: a worker publishes none for another worker's task", () => {
  const artifact = { name: "model.gguf", bytes: 1, sha256: "0".repeat(64) };
  const exit = { exitCode: 0, endedAtMs: 9_000, artifacts: [artifact] };
  const reports = [{ ...TASK, phase: "exited", exit }];
  jobs.do({ type: "tasks.report", nodeId: "b", reports });
  expect(jobs.job(1).state).toBe("running");
  jobs.do({ type: "tasks.report", nodeId: "a", reports });
  expect(jobs.job(1).state).toBe("succeeded");
  const task = [...jobs.control.state.tasks.values()][0];
  expect(task?.exit?.artifacts).toEqual([artifact]);
});

test("artifacts: a worker reads only those that a model is made of", async () => {
  const exit = {
    exitCode: 0,
    endedAtMs: 9_000,
    artifacts: [{ name: "secret.txt", bytes: 1, sha256: "0".repeat(64) }],
  };
  jobs.report(1, "exited", exit as never);
  const request = { task: TASK, name: "secret.txt", offset: 0, maxBytes: 0 };
  const read = async () => {
    const { signal } = new AbortController();
    for await (const _ of peerOf("b").serverStream(readArtifactMethod, request, signal))
      return "served";
    return "empty";
  };
  await expect(read()).rejects.toMatchObject({ code: "permission_denied" });
});
