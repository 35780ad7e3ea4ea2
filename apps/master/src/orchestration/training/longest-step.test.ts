// holds: bound-leader-steps

import type { JobRecord, TaskRecord } from "@heddle/control/jobs/records/records";
import { taskKey } from "@heddle/control/jobs/records/records";
import { beforeEach, expect, test } from "vitest";
import { endTurnsAfterEachStep, TurnReads } from "../../../test/counted-turns.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { LostWorkers } from "../tasks/lost-workers.ts";
import { ShardRelease } from "./shard-release.ts";

const COUNT = 20_000;
const RECOVERING = 200;
const TASKS = 64;
/** Reads of jobs and tasks in one turn. */
const MAX_READS = 500;

const reads = new TurnReads();
const log = { info() {}, warn() {}, error() {} };
const options = { credentials: { clusterToken: "t" }, log };
const clock = { wallMs: () => 1, monotonicMs: () => 1 };

beforeEach(endTurnsAfterEachStep);

/** All jobs hold shards, and the first ones recover. */
function clusterOf(count: number): ControlPlane {
  const jobs = new Map<string, JobRecord>();
  const tasks = new Map<string, TaskRecord>();
  const shards = ["p"];
  for (let at = 0; at < count; at++) {
    const id = `j${at}`;
    const state = at < RECOVERING ? "recovering" : "running";
    const job = { id, attempt: 1, tasks: TASKS, shards, state } as unknown as JobRecord;
    jobs.set(id, reads.counted(job, "state"));
    for (let rank = 0; at < RECOVERING && rank < TASKS; rank++) {
      const task = { jobId: id, attempt: 1, rank, phase: "running" } as unknown as TaskRecord;
      tasks.set(taskKey(id, 1, rank), reads.counted(task, "rank"));
    }
  }
  const shardsByServer = new Map([["p", new Map([...jobs.keys()].map((id) => [id, 1]))]]);
  return {
    state: { jobs, tasks, specs: new Map(), servers: new Map() },
    jobs: { live: new Set(jobs.keys()), shardsByServer },
  } as unknown as ControlPlane;
}

test("shard release: 20,000 jobs are read in bounded steps", async () => {
  const control = clusterOf(COUNT);
  const { jobs } = control.state;
  const get = jobs.get.bind(jobs);
  jobs.get = (id) => {
    reads.count();
    return get(id);
  };
  const release = new ShardRelease({ control, clock, ...options, onFreed: () => {} });
  await reads.during(() => release.step());
  expect(reads.all).toBeGreaterThanOrEqual(2 * COUNT);
  expect(reads.longest).toBeLessThan(MAX_READS);
});

test("lost workers: 20,000 jobs are read in bounded steps", async () => {
  const control = clusterOf(COUNT);
  const lost = new LostWorkers({ control, clock, ...options });
  await reads.during(() => lost.step());
  expect(reads.all).toBeGreaterThanOrEqual(COUNT + RECOVERING * TASKS);
  expect(reads.longest).toBeLessThan(MAX_READS);
});
