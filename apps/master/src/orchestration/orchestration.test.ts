// holds: life-through-raft

import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { lockDirectory } from "@heddle/consensus/member/directory-lock";
import { jobId, jobSpec, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { createLogger } from "@heddle/observability/logger";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { NestFactory } from "@nestjs/core";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ListedNodes } from "../../test/fixtures.ts";
import { ScriptedDispatch } from "../../test/scripted-dispatch.ts";
import { serveRaft } from "../../test/serve-raft.ts";
import { testConfig } from "../../test/test-config.ts";
import { scriptedCluster, TEST_PEPPER } from "../../test/test-master.ts";
import { configModule } from "../config/config.module.ts";
import { controlPlaneModule } from "../control-plane/control-plane.module.ts";
import { RaftControlPlane } from "../control-plane/raft/raft-control-plane.ts";
import { taskUses } from "../nodes/task-uses.ts";
import { PluginsModule } from "../plugins/plugins.module.ts";
import { OrchestrationModule } from "./orchestration.module.ts";

const logger = createLogger({ service: "master-test", level: "silent" });
const HOUR_MS = 3_600_000;
const credentials = { clusterToken: "a-token-for-tests-only" };
class Loops {}

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-jobs-"));
  await mkdir(join(folder, "control"));
});
afterEach(() => rm(folder, { recursive: true }));

/** A master of its own group with its loops, for the duration of the test. */
async function withMaster(run: (plane: RaftControlPlane) => Promise<void>): Promise<void> {
  const server = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const directory = join(folder, "control");
  const raise = (error: Error) => {
    throw error;
  };
  const plane = await RaftControlPlane.open({
    directory,
    credentials,
    server,
    name: "m1",
    logger,
    onFatal: raise,
    onRemoved: raise,
    lock: await lockDirectory(directory),
    service: await serveRaft(server),
    peers: new Map([["m1", server.address]]),
    snapshotEntries: 20,
  });
  await eventually(() => plane.status().role === "leader");
  // Entries of an earlier start are applied once the new term has committed.
  await plane.readBarrier();
  const jobTimes = { leaseMs: HOUR_MS, nodeLostMs: HOUR_MS, acknowledgeMs: HOUR_MS };
  const open = { control: plane, pepper: TEST_PEPPER, credentials, authorityHash: undefined };
  const imports = [
    configModule(testConfig(folder, { jobTimes }), logger),
    controlPlaneModule(open),
    PluginsModule,
    scriptedCluster(new ListedNodes(), new ScriptedDispatch()),
    OrchestrationModule,
  ];
  const options = { logger: false, abortOnError: false } as const;
  const loops = await NestFactory.createApplicationContext({ module: Loops, imports }, options);
  try {
    await run(plane);
  } finally {
    await loops.close();
    await plane.close();
    await closeServer(server.server, 100);
  }
}

const states = (plane: RaftControlPlane) =>
  [...plane.state.jobs.values()].map(({ state, attempt }) => [state, attempt]);

test("orchestration: jobs are placed through the log; a restarted master continues", async () => {
  await withMaster(async (plane) => {
    for (const id of ["a", "b"]) {
      await plane.propose({ type: "node.join", atMs: 1, offer: nodeOffer(id) });
    }
    for (let n = 0; n < 12; n++) {
      const spec = jobSpec({ name: `n${n}` });
      await plane.propose({ type: "job.submit", atMs: 1, jobId: jobId(n), spec });
    }
    const isPlaced = () => states(plane).filter(([state]) => state === "scheduled").length === 8;
    await eventually(isPlaced);
    await eventually(() => states(plane).every(([state]) => state !== "accepted"));
  });
  await withMaster(async (plane) => {
    expect(states(plane).map(([, attempt]) => attempt)).toEqual([
      ...Array<number>(8).fill(1),
      ...Array<number>(4).fill(0),
    ]);
    const uses = ["a", "b"].flatMap((node) => taskUses(plane, node));
    expect(uses).toHaveLength(8);
    expect(new Set(uses.map(({ id }) => id)).size).toBe(8);
    expect(uses[0]).toMatchObject({ cpu_cores: 1, gpus: [{ share: 1 }] });
    await plane.propose({ type: "job.request", atMs: 2, jobId: jobId(0), request: "cancel" });
    const task = plane.state.tasks.get(`${jobId(0)}/1/0`)!;
    const exit = { endedAtMs: 2 };
    const report = { jobId: jobId(0), attempt: 1, rank: 0, phase: "exited", exit } as const;
    const { nodeId } = task;
    await plane.propose({ type: "tasks.report", atMs: 2, nodeId, reports: [report] });
    await eventually(() => plane.state.jobs.get(jobId(8))?.state === "scheduled");
    expect(plane.state.jobs.get(jobId(0))?.state).toBe("cancelled");
  });
});
