// holds: sched-no-nodes

import { PassThrough } from "node:stream";
import type { JobExplanation } from "@heddle/contracts/api/job-replies";
import { expect, test } from "vitest";
import { terminal } from "../../output/terminal.ts";
import { writeBlockers } from "./job-explain.ts";

test("blockers: what amounts do not explain is said in words below them", () => {
  const amounts = { resource: "nodes", requested: 1, free: 0, limit: 0 };
  const blockers = [
    { reason: "NoNodes", ...amounts, message: "NoNodes: no worker takes jobs" },
    { reason: "InsufficientGpu", ...amounts, message: "InsufficientGpu: 1 GPU requested" },
  ];
  const explanation = {
    blockers,
    nodes: { total: 0, rejected: {}, rejected_by_capacity: 0 },
    start_estimate: {},
    changes: [],
    tasks_that_fit: 0,
  };
  const stream = new PassThrough();
  const out = terminal(stream as unknown as NodeJS.WriteStream, {});
  writeBlockers(explanation as unknown as JobExplanation, out);
  const text = String(stream.read());
  expect(text).toMatch(/^InsufficientGpu +nodes +1 +0 +0\s*$/m);
  expect(text.match(/^(NoNodes|InsufficientGpu): .*$/gm)).toEqual([
    "NoNodes: no worker takes jobs",
  ]);
});
