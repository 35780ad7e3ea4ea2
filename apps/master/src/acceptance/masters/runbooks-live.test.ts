// holds: ops-runbooks, ops-restore-incarnation

import { cpSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { SLOW_JOB, writeSlowEnvironment } from "@heddle/base/testing/slow-environment";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { LiveNodes } from "../../../test/live-nodes.ts";
import { type GroupView, MasterGroup, REAL_MASTER } from "../../../test/master-group.ts";
import { TINY } from "../../../test/process-cluster.ts";
import { Runbook } from "../../../test/runbook.ts";

// The runbooks of backup and forced recovery under a running command, a serving model and a
// training job: real processes, and the pages' commands unchanged.

const LEASE_MS = 20_000;
const TIMES = ["--lease-ms", String(LEASE_MS), "--node-lost-ms", "18000"];

let group: MasterGroup;
const started: LiveNodes[] = [];
let runbook: Runbook;
/** The address of the master for the requests. */
let url = "";

const slow = writeSlowEnvironment();
afterAll(() => slow.remove());
afterEach(async () => {
  await runbook?.close();
  await Promise.all(started.splice(0).map((nodes) => nodes.close()));
  await group?.close();
});

/** Nodes that attach to these masters. */
function nodesOf(...masters: readonly string[]): LiveNodes {
  const nodes = new LiveNodes(group, masters);
  started.push(nodes);
  return nodes;
}

interface Job {
  readonly job_id: string;
  readonly name: string;
  readonly state: string;
  readonly attempt: number;
  readonly failures: number;
  readonly failure: unknown;
  readonly progress: { readonly step: number | null } | null;
  readonly checkpoint: { readonly attempt: number; readonly step: number | null } | null;
}

async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers = {
    authorization: `Bearer ${group.adminKey}`,
    "content-type": "application/json",
  };
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const reply = await fetch(url + path, { method, headers, ...sent });
  const text = await reply.text();
  if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status}: ${text}`);
  return JSON.parse(text) as T;
}

async function submit(body: Record<string, unknown>, more = {}): Promise<string> {
  const resources = { cpu_cores: 0.2, memory_gb: 0.5, ...more };
  return (await call<Job>("POST", "/api/v1/jobs", { resources, ...body })).job_id;
}

const jobOf = (id: string) => call<Job>("GET", `/api/v1/jobs/${id}`);

/** Long enough for a lease and some starts of processes. */
const patiently = (what: () => string, holds: () => Promise<boolean>) =>
  eventually(holds, what, 180_000);

/** Waits until the job meets the condition; a failed job reports why. */
async function until(id: string, what: string, holds: (job: Job) => boolean): Promise<Job> {
  let job = await jobOf(id);
  await patiently(
    () => `${what}: ${JSON.stringify(job)}`,
    async () => {
      job = await jobOf(id);
      if (job.state === "failed") throw new Error(`${what}: ${JSON.stringify(job.failure)}`);
      return holds(job);
    },
  );
  return job;
}

/** A command that repeatedly writes its identity to a file shared by all attempts of the job. */
const BEATS = `run="$(date +%s) $(cat /proc/sys/kernel/random/uuid)"
beat() { echo "$run" >> "$HEDDLE_CHECKPOINT_DIR/beats"; sleep 0.25; }`;
const FOREVER = `${BEATS}\nwhile :; do beat; done`;
const UNTIL_RELEASED = `${BEATS}\nuntil [ -e "$HEDDLE_CHECKPOINT_DIR/released" ]; do beat; done`;

const sharedFile = (id: string, name: string) => join(group.folder, "checkpoints", id, name);

/** The runs of a command in order of start; one that continues under another appears twice. */
function runsOf(id: string): string[] {
  const path = sharedFile(id, "beats");
  const lines = existsSync(path) ? readFileSync(path, "utf8").trim().split("\n") : [];
  return lines.filter((line, at) => line !== lines[at - 1]);
}

/** A loaded machine may lose a node, and so start another run. */
async function awaitRuns(id: string, count: number): Promise<void> {
  await patiently(
    () => `${count} runs: ${runsOf(id)}`,
    async () => runsOf(id).length >= count,
  );
}

function expectNoOverlap(ids: readonly string[]): void {
  for (const runs of ids.map(runsOf)) expect(new Set(runs).size, `${runs}`).toBe(runs.length);
}

/** Runs since the restore started after the leases from before had expired. */
function expectHeld(id: string, { before, sinceMs }: { before: number; sinceMs: number }): void {
  for (const run of runsOf(id).slice(before)) {
    const begunMs = (Number(run.split(" ")[0]) + 1) * 1_000;
    expect(begunMs).toBeGreaterThan(sinceMs + LEASE_MS);
  }
}

async function suspend(id: string): Promise<void> {
  await call("POST", `/api/v1/jobs/${id}/suspend`);
  await until(id, "it is suspended", ({ state }) => state === "suspended");
}

const PLUGINS = ["--plugins", slow.path];

/** A job that trains longer than any test, with a checkpoint every second. */
const TRAINING = {
  name: "trains",
  algorithm: "ppo",
  config: SLOW_JOB,
  checkpoint_config: { interval_seconds: 1, grace_seconds: 30 },
};

const hasCheckpoint = ({ checkpoint, attempt }: Job) =>
  checkpoint?.attempt === attempt && (checkpoint.step ?? 0) > 0;

async function answers(): Promise<void> {
  let reported = "";
  await patiently(
    () => `the model answers: ${reported}`,
    async () => {
      const messages = [{ role: "user", content: "a heddle" }];
      const body = { model: TINY, messages, max_tokens: 4 };
      const reply = await call("POST", "/api/v1/chat/completions", body).catch((error) => error);
      reported = reply instanceof Error ? reply.message : "";
      return reported === "";
    },
  );
}

interface Health {
  readonly status: string;
  readonly components: { readonly nodes: { readonly refusing: number } };
}

async function isWell(): Promise<void> {
  let reported: unknown;
  await patiently(
    () => `everything works: ${JSON.stringify(reported)}`,
    async () => {
      const health = await call<Health>("GET", "/health/detailed");
      const { data } = await call<{ data: { name: string; status: string }[] }>(
        "GET",
        "/api/v1/workers",
      );
      const states = data.filter(({ name }) => name !== "far").map(({ status }) => status);
      reported = { health, states };
      return health.status === "ok" && states.every((status) => status === "ready");
    },
  );
  const cluster = await call<{ health: string }>("GET", "/api/v1/cluster/status");
  expect(cluster.health).toBe("ok");
}

async function open(page: string, settings: NodeJS.ProcessEnv): Promise<void> {
  runbook = new Runbook(`runbooks/${page}`, group.folder, {
    HEDDLE_API_KEY: group.adminKey,
    HEDDLE_HTTP_PORT: "0",
    HEDDLE_DRAIN_MS: "100",
    HEDDLE_WAL_SEGMENT_MIB: "1",
    HEDDLE_LEASE_MS: String(LEASE_MS),
    HEDDLE_NODE_LOST_MS: "18000",
    HEDDLE_BOOTSTRAP_KEY_FILE: join(group.folder, "admin-key"),
    HEDDLE_ENDPOINT: url,
    TOKEN_FILE: group.tokenFile,
    ...settings,
  });
}

async function logsOf(id: string): Promise<string> {
  const headers = { authorization: `Bearer ${group.adminKey}` };
  return (await fetch(`${url}/api/v1/jobs/${id}/logs?attempt=all`, { headers })).text();
}

describe("runbooks under load", { timeout: 900_000 }, () => {
  it("backup: a restore continues jobs, models and training; nothing runs twice", async () => {
    group = new MasterGroup(1, TIMES, () => ({}), REAL_MASTER);
    await group.startAll();
    url = group.url("master-1") ?? "";
    const old = await group.address("master-1");
    const address = `127.0.0.1:${await freePort()}`;
    const nodes = nodesOf(old, address);
    const far = nodesOf(old);
    const pool = [...PLUGINS, "--labels", "pool=far"];
    await Promise.all([
      nodes.startWorker("near", PLUGINS),
      nodes.startParameterServer("p"),
      far.startWorker("far", pool),
    ]);
    await answers();
    const steady = await submit({ name: "steady", command: FOREVER });
    const ends = await submit({ name: "ends", command: UNTIL_RELEASED });
    const trains = await submit(TRAINING);
    const there = { node_affinity: { pool: "far" } };
    const paused = await submit({ name: "paused", command: FOREVER }, there);
    await Promise.all([steady, ends, paused].map((id) => awaitRuns(id, 1)));
    await suspend(paused);
    const atBackup = await until(trains, "it has a checkpoint", hasCheckpoint);
    await open("backup", {
      DATA: group.directory("master-1"),
      NEW_DATA: join(group.folder, "new"),
      MASTER_1: address,
    });
    await runbook.run();
    await runbook.run();

    // What the backup lacks: an exit, another attempt, a start elsewhere and a job.
    writeFileSync(sharedFile(ends, "released"), "");
    await until(ends, "it has succeeded", ({ state }) => state === "succeeded");
    await suspend(steady);
    for (const id of [steady, paused]) await call("POST", `/api/v1/jobs/${id}/resume`);
    await Promise.all([steady, paused].map((id) => awaitRuns(id, 2)));
    const later = await submit({ name: "later", command: FOREVER });
    await awaitRuns(later, 1);
    await group.end("master-1", "SIGKILL");
    cpSync(group.directory("master-1"), join(group.folder, "copy"), { recursive: true });

    await runbook.run();
    const before = { steady: runsOf(steady).length, paused: runsOf(paused).length };
    const sinceMs = Date.now();
    expect((await runbook.run()).output).toContain("holds a new cluster");
    url = (await runbook.start()).url;
    runbook.env["HEDDLE_ENDPOINT"] = url;
    await runbook.run();
    runbook.end();
    // A worker that does not know of the restore runs a job that this cluster does not run.
    await nodesOf(address).startWorker("further", pool);
    await call("POST", `/api/v1/jobs/${paused}/resume`);
    await answers();
    await Promise.all([awaitRuns(steady, before.steady + 1), awaitRuns(paused, before.paused + 1)]);
    expectHeld(steady, { before: before.steady, sinceMs });
    expectHeld(paused, { before: before.paused, sinceMs });
    // Its checkpoint and first lines were lost with its exit.
    await awaitRuns(ends, 1);
    writeFileSync(sharedFile(ends, "released"), "");
    await until(ends, "it has succeeded again", ({ state }) => state === "succeeded");
    const trained = await until(trains, "training continues", (job) => {
      return job.attempt > atBackup.attempt && hasCheckpoint(job);
    });
    expect(trained.failures).toBe(0);
    expect(trained.checkpoint?.step).toBeGreaterThan(atBackup.checkpoint?.step ?? Infinity);
    expect(await logsOf(trains)).toMatch(/resumed from checkpoint/);
    await expect(jobOf(later)).rejects.toThrow(/404/);
    const beats = () => readFileSync(sharedFile(later, "beats"), "utf8").length;
    const reported = beats();
    await delay(2_000);
    expect(beats()).toBe(reported);
    await isWell();
    expectNoOverlap([steady, paused, later]);

    // The page's first step was skipped: the old masters run beside the new one.
    await far.close();
    const port = Number(old.split(":")[1]);
    const beside = await nodes.startMaster(join(group.folder, "copy"), port);
    const headers = { authorization: `Bearer ${group.adminKey}` };
    await patiently(
      () => "the old master says who refuses it",
      async () => {
        const reply = await fetch(`${beside}/health`);
        const { status, refusing_nodes } = (await reply.json()) as Record<string, unknown>;
        return status === "degraded" && refusing_nodes === 2;
      },
    );
    const { data } = (await (await fetch(`${beside}/api/v1/workers`, { headers })).json()) as {
      data: { name: string; status: string; refuses_leader: string | null }[];
    };
    const near = data.find(({ name }) => name === "near");
    expect(near).toMatchObject({
      status: "refusing",
      refuses_leader: expect.stringMatching(/later incarnation/),
    });
    await isWell();
    expectNoOverlap([steady, paused, later]);
  });

  it("forced recovery: one survivor of three continues with jobs, models and training", async () => {
    group = new MasterGroup(3, TIMES, () => ({}), REAL_MASTER);
    await group.startAll();
    url = group.url("master-3") ?? "";
    const addresses = await Promise.all(group.names.map((name) => group.address(name)));
    const nodes = nodesOf(...addresses);
    await Promise.all([nodes.startWorker("near", PLUGINS), nodes.startParameterServer("p")]);
    await answers();
    const steady = await submit({ name: "steady", command: FOREVER });
    const ends = await submit({ name: "ends", command: UNTIL_RELEASED });
    const trains = await submit(TRAINING);
    await Promise.all([steady, ends].map((id) => awaitRuns(id, 1)));
    const before = await until(trains, "it has a checkpoint", hasCheckpoint);
    await patiently(
      () => "the survivor knows it",
      async () =>
        (await group.status("master-3")).leader !== null && hasCheckpoint(await jobOf(trains)),
    );
    await Promise.all(["master-1", "master-2"].map((name) => group.end(name, "SIGKILL")));
    await patiently(
      () => "there is no leader",
      async () => (await group.status("master-3")).leader === null,
    );
    writeFileSync(sharedFile(ends, "released"), "");
    const [one, two, three] = addresses;
    await open("forced-recovery", {
      DATA: group.directory("master-3"),
      DATA_2: group.directory("master-2"),
      MASTER_2: two,
      MASTER_3: three,
      PEERS: `master-1=${one},master-2=${two},master-3=${three}`,
    });
    await runbook.run();
    await group.end("master-3", "SIGKILL");
    expect((await runbook.run()).output).toContain("Nothing was done");
    const runs = runsOf(steady).length;
    await runbook.run();
    url = (await runbook.start()).url;
    runbook.env["HEDDLE_ENDPOINT"] = url;
    await answers();
    await awaitRuns(steady, runs + 1);
    await until(ends, "it has succeeded", ({ state }) => state === "succeeded");
    const trained = await until(trains, "training continues", (job) => {
      return job.attempt > before.attempt && hasCheckpoint(job);
    });
    expect(trained.failures).toBe(0);
    expect(await logsOf(trains)).toMatch(/resumed from checkpoint/);
    await runbook.run();
    await runbook.start();
    await patiently(
      () => "the other master joins",
      async () => {
        const { masters } = await call<GroupView>("GET", "/api/v1/cluster/status");
        return masters.some(({ id, role }) => id === "master-2" && role === "follower");
      },
    );
    await isWell();
    await answers();
    expectNoOverlap([steady]);
  });
});
