// holds: cli-progress

import type { JobUpdate } from "@heddle/client/resources/jobs/job-stream";
import { describe, expect, it } from "vitest";
import { JobProgressView } from "./job-progress.ts";
import { type Terminal, terminal } from "./terminal.ts";

function output(isTty: boolean, columns = 60): { text: string; out: Terminal } {
  const seen = { text: "" };
  const write = (piece: string) => {
    seen.text += piece;
  };
  const stream = { isTTY: isTty, columns, write } as unknown as NodeJS.WriteStream;
  return Object.assign(seen, { out: terminal(stream, { NO_COLOR: "1" }) });
}

function progress(share: number, step: number): JobUpdate {
  return {
    type: "progress",
    job_id: "job_1",
    phase: "RUNNING",
    progress: share,
    step,
    total_steps: 100,
    loss: 1.23456,
    reward: null,
    steps_per_second: null,
    tokens_per_second: null,
    backend: null,
    device: null,
    bytes_pushed: null,
    metrics: {},
    message: "epoch\u001b[31m 1",
    at: "2026-01-01T00:00:00.000Z",
    expected_end: "2026-01-01T10:20:00.000Z",
  };
}

function state(phase: "RUNNING" | "SUCCEEDED", attempt = 1): JobUpdate {
  return {
    type: "state",
    id: "7.0",
    job_id: "job_1",
    name: "a",
    project: "default",
    state: phase === "RUNNING" ? "running" : "succeeded",
    phase,
    from: null,
    attempt,
    why: null,
    failure: null,
    at: "2026-01-01T01:02:03.000Z",
  };
}

describe("job updates", () => {
  it("are lines without a terminal, with progress at each tenth of an attempt", () => {
    const seen = output(false);
    const view = new JobProgressView(seen.out);
    view.update(state("RUNNING"));
    for (let step = 0; step <= 25; step++) view.update(progress(step / 100, step));
    view.update(state("RUNNING", 2));
    view.update(progress(0.05, 5));
    view.end();
    const lines = seen.text.trimEnd().split("\n");
    expect(lines.map((line) => line.split(",")[0])).toEqual([
      "01:02:03 RUNNING",
      "progress 0 %",
      "progress 10 %",
      "progress 20 %",
      "01:02:03 RUNNING attempt 2",
      "progress 5 %",
    ]);
    expect(lines[1]).toBe(
      "progress 0 %, step 0/100, loss 1.235, ends about 10:20 UTC, epoch\ufffd[31m 1",
    );
  });

  it("are a bar on a terminal, redrawn in one line that never wraps", () => {
    for (const columns of [20, 60, 200]) {
      const seen = output(true, columns);
      const view = new JobProgressView(seen.out);
      view.update(progress(0.5, 50));
      view.update(progress(1, 100));
      view.update(state("SUCCEEDED"));
      view.end();
      const [, first = "", second = ""] = seen.text.split("\r\x1b[2K");
      const [bar = "", last] = second.split("\n");
      expect(first.startsWith("[############-------".slice(0, columns - 1))).toBe(true);
      expect(first.length).toBeLessThan(columns);
      expect(bar.length).toBeLessThan(columns);
      expect(last).toBe("01:02:03 SUCCEEDED");
    }
  });
});
