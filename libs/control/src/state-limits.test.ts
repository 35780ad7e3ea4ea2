// holds: bound-state

import { CLUSTER_SETTINGS } from "@heddle/contracts/api/settings";
import { expect, test } from "vitest";
import { FORGETS_KEYS } from "./cluster-version.ts";
import { PlannedCluster } from "./jobs/testing/planned-cluster.ts";
import { jobId, nodeOffer } from "./jobs/testing/specs.ts";
import { ReplicatedControl } from "./replicated-control.ts";
import { stateUse } from "./state-limits.ts";

const KIB = 1_024;

/** A cluster whose state may take this many MiB. */
function cluster(stateMib: number): PlannedCluster {
  const made = new PlannedCluster();
  made.do({ type: "setting.put", name: "state_mib", value: stateMib });
  return made;
}

const large = (n: number) => ({
  algorithm: "own",
  config: { text: `${n}`.padEnd(200 * KIB, "x") },
});

/** Submits until one is refused; returns how many were accepted. */
function fill(made: PlannedCluster): { taken: number; refusal: unknown } {
  for (let n = 1; ; n++) {
    const reply = made.submit(n, large(n));
    if (!reply.ok) return { taken: n - 1, refusal: reply };
  }
}

test("state: a job is refused before its share of the state is full", () => {
  const made = cluster(16);
  const { taken, refusal } = fill(made);
  expect(refusal).toMatchObject({ ok: false, code: "insufficient_storage" });
  expect(taken).toBe(39);
  const { jobs } = stateUse(made.control.state);
  expect(jobs.bytes).toBeLessThan(jobs.limit);
  // Repeating the submission gets the same reply.
  expect(made.submit(1, large(1))).toEqual({ ok: true, wasThere: true });
  // Accepted jobs can still run and end, and free their room when they are dropped.
  made.join("a", { executors: ["process"], algorithms: ["own"] });
  made.do({ type: "job.request", jobId: jobId(1), request: "cancel" });
  expect(made.job(1).state).toBe("cancelled");
  made.pass(8 * 24 * 3_600_000);
  expect(made.submit(9_999, large(9_999))).toEqual({ ok: true });
});

test("state: the limit counts structure beside text", () => {
  const made = cluster(16);
  const config = { list: Array.from({ length: 16_000 }, () => []) };
  for (let n = 1; n < 1_000; n++) {
    if (!made.submit(n, { algorithm: "own", config }).ok) break;
  }
  const { jobs } = stateUse(made.control.state);
  // An empty array takes about 50 bytes.
  expect(made.control.state.specs.size).toBeLessThan((16 * 2 ** 20) / (16_000 * 40));
  expect(jobs.bytes).toBeLessThan(jobs.limit);
});

test("state: a start is refused where its tasks' records do not fit", () => {
  const made = cluster(16);
  made.join("a", { cpuMilli: 1e9, memoryMib: 1e9 });
  const resources = { gpu_count: 0, cpu_cores: 5, memory_gb: 5 };
  for (let n = 1; n <= 16; n++) made.submit(n, { tasks: 4_096, resources });
  const { reply } = made.plan();
  const refused = "refused" in reply ? reply.refused : [];
  expect(refused?.length).toBeGreaterThan(0);
  expect(new Set(refused?.map(({ why }) => why))).toEqual(new Set(["state_full"]));
  const { jobs } = stateUse(made.control.state);
  expect(jobs.bytes).toBeLessThan(jobs.limit);
});

/** The longest exit that a master logs. */
function longestExit(reason?: "ExitCode") {
  const artifacts = Array.from({ length: 256 }, (_, at) => {
    return { name: `${at}`.padEnd(256, "ä"), bytes: 1, sha256: "0".repeat(64) };
  });
  const message = "m".repeat(2_048);
  const lastLines = Array.from({ length: 4 }, () => "x".repeat(4_096));
  return { endedAtMs: 1, message, lastLines, ...(reason ? { reason } : { artifacts }) };
}

const longestProgress = {
  atMs: 1,
  message: "p".repeat(1_024),
  metrics: Object.fromEntries(Array.from({ length: 32 }, (_, at) => [`${at}`.padEnd(64, "k"), at])),
};

test.each([
  ["artifacts", undefined, 16],
  ["last lines", "ExitCode", 160],
] as const)("state: %s of ended tasks never pass the limit", (_, reason, jobs) => {
  const made = cluster(16);
  made.join("a", { cpuMilli: 1e9, memoryMib: 1e9 });
  const within = () => {
    const { bytes, limit } = stateUse(made.control.state).jobs;
    expect(bytes).toBeLessThan(limit);
  };
  const resources = { gpu_count: 0, cpu_cores: 1, memory_gb: 1 };
  for (let n = 1; n <= jobs; n++) made.submit(n, { tasks: 4, resources, retry_limit: 0 });
  made.plan();
  for (let n = 1; n <= jobs; n++) {
    made.report(n, "running");
    const entries = [{ jobId: jobId(n), attempt: 1, progress: longestProgress }];
    made.do({ type: "jobs.progress", entries });
    within();
    made.report(n, "exited", longestExit(reason));
    within();
  }
  // The last one ended too, without the details that had no room.
  const { state, progress, failure } = made.job(jobs);
  const { exit } = made.control.state.tasks.get(`${jobId(jobs)}/1/3`) ?? {};
  expect(progress).toEqual({ atMs: 1 });
  expect(exit?.lastLines).toBeUndefined();
  expect(exit?.artifacts).toBeUndefined();
  if (reason) {
    expect({ state, length: failure?.message.length }).toEqual({ state: "failed", length: 256 });
    return;
  }
  expect(state).toBe("succeeded");
  expect(exit?.message).toMatch(/^its 256 artifacts are not listed: .*state_mib$/);
});

test("state: a full share of waiting jobs leaves room for starts", () => {
  const made = cluster(16);
  made.join("a", { cpuMilli: 1e9, memoryMib: 1e9 });
  const resources = { gpu_count: 0, cpu_cores: 1, memory_gb: 1 };
  for (let n = 1; n < 100; n++) if (!made.submit(n, { ...large(n), resources }).ok) break;
  for (let n = 100; made.submit(n, { resources }).ok; n++);
  made.run(1);
  made.run(100);
  expect(made.job(100).state).toBe("running");
});

test("state: the oldest events are dropped above their share of bytes", () => {
  const made = cluster(16);
  made.join("a");
  for (let n = 1; n <= 6_000; n++) {
    made.submit(n);
    made.do({ type: "job.request", jobId: jobId(n), request: "cancel" });
  }
  const { events, settings } = made.control.state;
  expect(events.size).toBeLessThan(12_000);
  expect(stateUse({ events, settings }).jobs.bytes).toBeLessThan(16 * 0.7 * 0.1 * 2 ** 20);
  const { events: log } = made.control.jobs;
  expect(log.isCompacted({ index: 2, ordinal: 0 })).toBe(true);
  expect([...log.after({ index: 0, ordinal: 0 })]).toHaveLength(events.size);
});

test("state: a full share of nodes refuses a new node, but no known one", () => {
  const made = cluster(16);
  let refusal: unknown;
  for (let n = 0; n < 10_000 && !refusal; n++) {
    const offer = nodeOffer(`n${n}`, { labels: { text: "x".repeat(10 * KIB) } });
    const reply = made.do({ type: "node.join", offer });
    if (!reply.ok) refusal = reply;
  }
  expect(refusal).toMatchObject({ code: "insufficient_storage" });
  const larger = { labels: { text: "x".repeat(20 * KIB) } };
  const grown = made.do({ type: "node.join", offer: nodeOffer("n0", larger) });
  expect(grown).toMatchObject({ code: "insufficient_storage" });
  expect(made.do({ type: "node.join", offer: nodeOffer("n0") })).toEqual({ ok: true });
});

test("state: above a lowered limit a known node joins again, but not with more", () => {
  const made = cluster(32);
  const labels = (kib: number) => ({ labels: { text: "x".repeat(kib * KIB) } });
  for (let n = 0; made.join(`n${n}`, labels(10)).ok; n++);
  made.do({ type: "setting.put", name: "state_mib", value: 16 });
  const { cluster: use } = stateUse(made.control.state);
  expect(use.bytes).toBeGreaterThan(use.limit);
  expect(made.join("n1", labels(10))).toEqual({ ok: true });
  expect(made.join("n1", labels(11))).toMatchObject({ code: "insufficient_storage" });
});

test("state: masters agree on the bytes after a restore", async () => {
  const made = cluster(16);
  made.join("a");
  for (let n = 1; n <= 20; n++) made.submit(n, large(n));
  made.plan();
  const restored = new ReplicatedControl();
  await restored.restore([...made.control.snapshot()]);
  expect(stateUse(restored.state)).toEqual(stateUse(made.control.state));
});

test("state: version 1 has neither the limit nor the settings of later ones", () => {
  const first = ["max_concurrent_jobs", "job_timeout", "overcommit_ratio", "shared_storage_gb"];
  const control = new ReplicatedControl();
  for (const [at, [name, { default: value }]] of Object.entries(CLUSTER_SETTINGS).entries()) {
    const put = { type: "setting.put", atMs: 0, name, value } as const;
    const reply = control.apply({ type: "control", command: put }, at + 1);
    expect(reply).toMatchObject(first.includes(name) ? { ok: true } : { code: "not_found" });
  }
});

/** A key that takes some 60 KiB. */
function largeKey(n: number, more: object = {}) {
  const id = `${n}`.padStart(8, "K");
  const models = Array.from({ length: 1_000 }, (_, at) => `${at}-${n}`.padEnd(60, "m"));
  const rest = { name: "k", scopes: ["jobs:read"], limits: {}, createdAtMs: 0 };
  return { id, hash: "0".repeat(64), models, ...rest, ...more };
}

// holds: bound-keys
test("state: ended keys give way to new ones, but none that another has replaced", () => {
  const made = cluster(16);
  const create = (n: number) => made.do({ type: "key.create", key: largeKey(n) });
  expect(create(1)).toEqual({ ok: true });
  const [replaced, successor] = [largeKey(1), largeKey(2, { rotatedFrom: largeKey(1).id })];
  const rotation = { id: replaced.id, key: successor, expiresAtMs: 2 ** 52 };
  expect(made.do({ type: "key.rotate", ...rotation })).toEqual({ ok: true });
  let n = 3;
  while (create(n).ok) n++;
  expect(create(n)).toMatchObject({ ok: false, code: "insufficient_storage" });
  made.do({ type: "key.revoke", id: replaced.id });
  expect(create(n)).toMatchObject({ ok: false, code: "insufficient_storage" });
  made.do({ type: "key.revoke", id: largeKey(5).id });
  made.do({ type: "key.revoke", id: largeKey(4).id });
  expect(create(n)).toEqual({ ok: true });
  const { keys } = made.control.state;
  expect([1, 2, 3, 4, 5, n].map((at) => keys.has(largeKey(at).id))).toEqual([
    true,
    true,
    true,
    false,
    true,
    true,
  ]);
});

test("state: before FORGETS_KEYS an ended key stays", () => {
  const made = cluster(16);
  made.control.state.cluster.set("version", FORGETS_KEYS - 1);
  const create = (n: number) => made.do({ type: "key.create", key: largeKey(n) });
  let n = 1;
  while (create(n).ok) n++;
  made.do({ type: "key.revoke", id: largeKey(1).id });
  expect(create(n)).toMatchObject({ ok: false, code: "insufficient_storage" });
});
