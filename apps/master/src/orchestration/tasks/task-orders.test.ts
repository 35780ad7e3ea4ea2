import type { TaskExit__Output } from "@heddle/contracts/generated/heddle/v1/TaskExit";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { TaskRecord } from "@heddle/control/jobs/records/records";
import { expect, test } from "vitest";
import { isOfEarlierCluster, logEntriesOf, logEntryOf, statusDelta } from "./task-orders.ts";

test("task orders: a lease from before a restore is not the lease to be given", () => {
  const leasedBy = (cluster: string) => ({ cluster });
  const [reserved, running] = [{ phase: "reserved" }, { phase: "running" }] as const;
  expect(isOfEarlierCluster(reserved, leasedBy("before"), "now")).toBe(true);
  // In the backup it was running: its exit counts.
  expect(isOfEarlierCluster(running, leasedBy("before"), "now")).toBe(false);
  expect(isOfEarlierCluster(reserved, leasedBy("now"), "now")).toBe(false);
  // A worker of an earlier version does not report it.
  expect(isOfEarlierCluster(reserved, leasedBy(""), "now")).toBe(false);
  expect(isOfEarlierCluster(reserved, undefined, "now")).toBe(false);
});

// holds: bound-reports
test("task orders: what the log takes of a worker's report is bounded in bytes", () => {
  const record: TaskRecord = {
    jobId: "job_A",
    attempt: 1,
    rank: 0,
    nodeId: "a",
    gpuMilli: 0,
    devices: [],
    phase: "running",
  };
  const long = "ä".repeat(1_000_000);
  const artifact = { name: "model.gguf", bytes: 5, sha256: "0".repeat(64), pieces: "" };
  const exit: TaskExit__Output = {
    reason: "NodeLost",
    message: long,
    signal: long,
    lastLines: [long, ...Array.from({ length: 49 }, (_, at) => `${at}`.padEnd(600, "."))],
    endedUnixMs: 1,
    asked: false,
    sickDevices: Array.from({ length: 1_000 }, (_, at) => at),
    artifacts: [artifact, { ...artifact, name: long }, { ...artifact, sha256: long }],
  };
  const status: TaskStatus__Output = {
    task: { jobId: "job_A", attempt: 1, rank: 0, incarnation: 0 },
    phase: "exited",
    rendezvous: long,
    exit,
    progress: null,
    cluster: "c",
  };
  const report = statusDelta(record, status)!;
  const bytes = (value: unknown) => Buffer.byteLength(JSON.stringify(value));
  expect(bytes(report)).toBeLessThan(32 * 1024);
  expect(report.exit).toMatchObject({ artifacts: [{ name: "model.gguf" }] });
  // The latest lines are the ones that explain the end.
  const lines = report.exit?.lastLines ?? [];
  expect(lines.length).toBeGreaterThan(20);
  expect(lines).toEqual(exit.lastLines.slice(-lines.length));
  // A loss of many tasks at once is more than one entry of the log.
  const reports = Array.from({ length: 100 }, () => report);
  const first = logEntryOf(reports);
  expect(bytes(first)).toBeLessThanOrEqual(512 * 1024);
  expect(bytes([...first, report])).toBeGreaterThan(512 * 1024);
  expect(logEntryOf([{ ...report, rendezvous: long }, report])).toHaveLength(1);
  const small = { jobId: "job_A", attempt: 1, rank: 0, phase: "running" } as const;
  expect(logEntryOf(Array.from({ length: 300 }, () => small))).toHaveLength(256);
  expect(logEntryOf([])).toEqual([]);
});

// holds: bound-reports
test("task orders: reports of many workers share entries of the log, within bounds", () => {
  const report = (count: number, rendezvous = "") => ({
    nodeId: "a",
    reports: Array.from({ length: count }, (_, rank) => {
      return { jobId: "job_A", attempt: 1, rank, phase: "running", rendezvous } as const;
    }),
  });
  const countsOf = (reports: ReturnType<typeof report>[]) =>
    logEntriesOf(reports).map((entry) => entry.map(({ reports: { length } }) => length));
  expect(countsOf([200, 56, 1, 256, 1].map((count) => report(count)))).toEqual([
    [200, 56],
    [1],
    [256],
    [1],
  ]);
  const long = "x".repeat(200 * 1024);
  expect(countsOf([report(1, long), report(1, long), report(1, long)])).toEqual([[1, 1], [1]]);
  expect(logEntriesOf([])).toEqual([]);
});
