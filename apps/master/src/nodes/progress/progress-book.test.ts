// holds: life-progress, life-progress-clock

import type { JobRecord } from "@heddle/control/jobs/records/records";
import { expect, test } from "vitest";
import { viewProgress } from "../../api/jobs/progress-view.ts";
import { ProgressBook } from "./progress-book.ts";

const START_MS = Date.UTC(2026, 0, 1);
const JOB: JobRecord = {
  id: "job_A",
  name: "a",
  project: "default",
  queue: "default",
  state: "running",
  submittedIndex: 1,
  submittedAtMs: START_MS,
  changedIndex: 5,
  sinceMs: START_MS,
  tasks: 2,
  attempt: 2,
  failures: 0,
  losses: 0,
  preemptions: 0,
  liveTasks: 2,
  waitingFor: [],
  startedAtMs: START_MS,
};

interface ReportFields {
  readonly attempt?: number;
  readonly rank?: number;
  readonly incarnation?: number;
  readonly checkpoint?: string;
  readonly checkpointStep?: number;
}

function report(atMs: number, line: unknown, fields: ReportFields = {}) {
  const { attempt = 2, rank = 0, incarnation = 0, checkpoint = "", checkpointStep } = fields;
  const progress = {
    line: JSON.stringify(line),
    atUnixMs: START_MS + atMs,
    checkpoint,
    checkpointUnixMs: START_MS + atMs,
    checkpointBytes: 0,
    ...(checkpointStep !== undefined && { checkpointStep }),
  };
  return { task: { jobId: "job_A", attempt, rank, incarnation }, progress };
}

test("progress: the lowest rank of the latest attempt counts; repeats are ignored", () => {
  const book = new ProgressBook();
  let changes = 0;
  book.onChange(() => {
    changes += 1;
  });
  book.take(report(1_000, { step: 9 }, { attempt: 1 }));
  book.take(report(2_000, { step: 1 }, { rank: 1 }));
  book.take(report(1_500, { step: 2 }));
  for (const stale of [
    report(1_500, { step: 2 }),
    report(1_200, { step: 1 }),
    report(3_000, { step: 7 }, { rank: 1 }),
    report(3_000, { step: 8 }, { attempt: 1 }),
  ]) {
    book.take(stale);
  }
  expect(book.of(JOB)?.latest.step).toBe(2);
  expect(changes).toBe(3);
  book.take(report(31_501, { step: 4 }, { rank: 1 }), performance.now() + 31_000);
  expect(book.of(JOB)?.latest.step).toBe(4);
});

test("progress: a rank with a slow clock counts after 30 s of silence", () => {
  const book = new ProgressBook();
  const stepAt = (receivedMs: number, ...fields: Parameters<typeof report>) => {
    book.take(report(...fields), receivedMs);
    return book.of(JOB)?.latest.step;
  };
  expect(stepAt(0, 3_600_000, { step: 9 })).toBe(9);
  expect(stepAt(1_000, 100, { step: 8 }, { rank: 1 })).toBe(9);
  // A repeated line is not new, however long the other rank is silent.
  expect(stepAt(31_000, 100, { step: 8 }, { rank: 1 })).toBe(9);
  expect(stepAt(31_000, 200, { step: 10 }, { rank: 1 })).toBe(10);
  expect(stepAt(31_500, 3_600_000, { step: 9 })).toBe(10);
  // The replacement of rank 0 runs where the clock is behind; its predecessor is silent.
  expect(stepAt(32_000, 300, { step: 11 }, { incarnation: 1 })).toBe(11);
  expect(stepAt(32_500, 3_601_000, { step: 12 })).toBe(11);
  const logged = { rank: 0, incarnation: 0, atMs: START_MS + 3_600_000 };
  for (const before of [
    { ...logged, attempt: 2, step: 9 },
    { ...logged, attempt: 1, step: 99 },
  ]) {
    expect(book.of({ ...JOB, progress: before })?.latest.step).toBe(11);
  }
});

test("progress: the fresher of log and workers counts, within one attempt", () => {
  const book = new ProgressBook();
  const logged = { atMs: START_MS + 2_000, step: 2 };
  expect(book.of(JOB)).toBeUndefined();
  expect(book.of({ ...JOB, progress: logged })).toEqual({ latest: logged });
  book.take(report(1_000, { step: 1 }));
  expect(book.of({ ...JOB, progress: logged })?.latest.step).toBe(2);
  book.take(report(3_000, { step: 3 }));
  expect(book.of({ ...JOB, progress: logged })?.latest.step).toBe(3);
  expect(book.of({ ...JOB, attempt: 3, progress: logged })?.latest.step).toBe(2);
  expect(book.of({ ...JOB, state: "succeeded", progress: logged })?.latest.step).toBe(2);
});

test("log entry: due once, after its interval or at an urgent end", () => {
  const book = new ProgressBook(10_000);
  book.take(report(1_000, { step: 1 }, { checkpoint: "c1", checkpointStep: 1 }));
  const first = book.due(0, new Set());
  expect(first).toMatchObject([
    { progress: { attempt: 2, step: 1 }, checkpoint: { name: "c1", step: 1 } },
  ]);
  book.written(first, 0);
  expect(book.due(20_000, new Set())).toEqual([]);
  book.take(report(2_000, { step: 2 }));
  expect(book.due(9_000, new Set())).toEqual([]);
  expect(book.due(9_000, new Set(["job_A"]))).toHaveLength(1);
  expect(book.due(10_000, new Set())).toHaveLength(1);
  book.keepOnly(() => false);
  expect(book.due(30_000, new Set())).toEqual([]);
});

test("checkpoint: its step is the one saved, not the step of the report", () => {
  const book = new ProgressBook();
  book.take(report(1_000, { step: 220 }, { checkpoint: "c1", checkpointStep: 196 }));
  expect(book.due(0, new Set())).toMatchObject([
    { progress: { step: 220 }, checkpoint: { name: "c1", step: 196 } },
  ]);
  book.take(report(2_000, { step: 240 }, { checkpoint: "c2" }));
  expect(book.due(20_000, new Set())[0]?.checkpoint).toMatchObject({ name: "c2", step: undefined });
});

test("checkpoint: a new one is due within a second of the last entry", () => {
  const book = new ProgressBook(10_000);
  book.take(report(1_000, { step: 1 }, { checkpoint: "c1" }));
  book.written(book.due(0, new Set()), 0);
  book.take(report(2_000, { step: 2 }, { checkpoint: "c1" }));
  expect(book.due(9_000, new Set())).toEqual([]);
  book.take(report(3_000, { step: 3 }, { checkpoint: "c2" }));
  expect(book.due(999, new Set())).toEqual([]);
  expect(book.due(1_000, new Set())).toMatchObject([{ checkpoint: { name: "c2" } }]);
});

test("expected end: from the speed since the attempt's first reading, or the job's", () => {
  const book = new ProgressBook();
  const endOf = () => Date.parse(viewProgress(JOB, book.of(JOB)!).expected_end ?? "") - START_MS;
  book.take(report(10_000, { step: 50, total_steps: 100, steps_per_second: 10 }));
  expect(endOf()).toBe(15_000);
  // Resumed at step 50: ten steps in twenty seconds, forty remaining.
  book.take(report(30_000, { step: 60, total_steps: 100 }));
  expect(endOf()).toBe(110_000);
  expect(viewProgress(JOB, book.of(JOB)!)).toMatchObject({ progress: 0.6, step: 60, loss: null });
  const logged = { latest: { atMs: START_MS + 10_000, progress: 0.5 } };
  expect(viewProgress(JOB, logged).expected_end).toBe(new Date(START_MS + 20_000).toISOString());
});

// holds: bound-reports
test("progress: a checkpoint's name that no program may give is not taken", () => {
  const book = new ProgressBook();
  book.take(report(1_000, { step: 1 }, { checkpoint: "x".repeat(512) }));
  expect(book.due(0, new Set())[0]?.checkpoint?.name).toHaveLength(512);
  book.take(report(2_000, { step: 2 }, { checkpoint: "x".repeat(513) }));
  const [entry] = book.due(0, new Set());
  expect(entry).toMatchObject({ progress: { step: 2 } });
  expect(entry?.checkpoint).toBeUndefined();
});
