import type { ClusterEvent } from "@heddle/contracts/api/events";
import type { LogEntry } from "@heddle/contracts/api/job-operations";
import type { JobSummary } from "@heddle/contracts/api/job-replies";
import type { JobState } from "@heddle/contracts/api/job-spec";
import { describe, expect, it } from "vitest";
import { attemptsOf } from "./attempts.ts";
import { LogBuffer, linesWith } from "./log-buffer.ts";
import { hasGap, mergeJobs } from "./merge-jobs.ts";

const at = (minute: number) => `2026-11-28T04:${String(minute).padStart(2, "0")}:00.000Z`;
const job = (id: string, state: JobState, minute: number) =>
  ({ id, state, since: at(minute), attempt: 1 }) as JobSummary;
const event = (id: string, state: JobState, minute: number) =>
  ({ type: "job", job_id: id, state, at: at(minute), attempt: 2 }) as ClusterEvent;
const shown = (rows: readonly JobSummary[]) => rows.map(({ id, state }) => `${id} ${state}`);

describe("the list of jobs", () => {
  it("jobs: new ones come first, and known ones keep their places", () => {
    const read = [job("b", "running", 1), job("a", "pending", 0)];
    const newest = [job("c", "pending", 2), job("b", "succeeded", 2)];
    expect(shown(mergeJobs(newest, read, []))).toEqual(["c pending", "b succeeded", "a pending"]);
  });

  it("jobs: the latest event changes a row, an older one does not", () => {
    const read = [job("b", "running", 5), job("a", "pending", 0)];
    const events = [
      event("a", "running", 3),
      event("a", "scheduled", 2),
      event("b", "starting", 4),
    ];
    expect(shown(mergeJobs([], read, events))).toEqual(["b running", "a running"]);
  });

  it("jobs: more new ones than a page leave a gap, which is noticed", () => {
    const read = [job("a", "pending", 0)];
    expect(hasGap([job("c", "pending", 2), job("a", "pending", 0)], read)).toBe(false);
    expect(hasGap([job("c", "pending", 2)], read)).toBe(true);
    expect(hasGap([], read)).toBe(false);
  });
});

const line = (text: string, cursor?: string) =>
  ({ type: "line", rank: 0, stream: "stdout", text, cursor }) as LogEntry;

describe("the lines of a log", () => {
  it("logs: beyond the bound the oldest lines are dropped, and counted", () => {
    const buffer = new LogBuffer(3);
    buffer.add([line("a"), line("b", "1")]);
    buffer.add([line("c"), line("d", "2")]);
    expect(buffer.lines.map(({ text }) => text)).toEqual(["b", "c", "d"]);
    expect([buffer.dropped, buffer.cursor]).toEqual([1, "2"]);
  });

  it("logs: lines keep their numbers, and a filter ignores the case", () => {
    const buffer = new LogBuffer();
    buffer.add([line("Epoch 1"), line("loss 3"), line("epoch 2")]);
    const found = linesWith(buffer.lines, "EPOCH");
    expect(found.map(({ number }) => number)).toEqual([0, 2]);
    expect(linesWith(buffer.lines, "")).toBe(buffer.lines);
  });

  it("logs: 100,000 lines are held and filtered in time for a reader", () => {
    const buffer = new LogBuffer();
    const began = performance.now();
    buffer.add(Array.from({ length: 100_000 }, (_, index) => line(`line ${index}`)));
    expect(linesWith(buffer.lines, "line 9999")).toHaveLength(11);
    expect(performance.now() - began).toBeLessThan(20_000);
  });
});

describe("the attempts of a job", () => {
  const entered = (attempt: number, state: JobState, minute: number) =>
    ({ ...event("a", state, minute), attempt }) as ClusterEvent;
  const now = Date.parse(at(59));

  it("attempts: each has its states, of which the last one lasts until now", () => {
    const attempts = attemptsOf(
      [
        entered(0, "pending", 0),
        entered(1, "scheduled", 2),
        entered(1, "running", 3),
        entered(1, "retrying", 9),
        entered(2, "running", 10),
      ],
      now,
    );
    const minutes = ({ fromMs, untilMs }: { fromMs: number; untilMs: number }) =>
      (untilMs - fromMs) / 60_000;
    expect(
      attempts.map(({ attempt, spans }) => [
        attempt,
        ...spans.map((span) => `${span.state} ${minutes(span)}`),
      ]),
    ).toEqual([
      [0, "pending 2"],
      [1, "scheduled 1", "running 6", "retrying 1"],
      [2, "running 49"],
    ]);
  });

  it("attempts: an end takes no time, and nothing is there without events", () => {
    const [attempt] = attemptsOf([entered(1, "running", 3), entered(1, "failed", 5)], now);
    expect(attempt?.spans.at(-1)).toEqual({
      state: "failed",
      fromMs: Date.parse(at(5)),
      untilMs: Date.parse(at(5)),
    });
    expect(attemptsOf([], now)).toEqual([]);
  });
});
