// holds: bound-plan-parts

import { NEWEST_VERSION } from "@heddle/control/cluster-version";
import type { ControlCommand } from "@heddle/control/command";
import { jobId, jobSpec, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { VolatileControl } from "../../../test/test-master.ts";
import { Scheduling } from "./scheduling.ts";
import { schedulingStep } from "./scheduling-step.ts";

test("a plan of large jobs: goes into the log in parts, and yields between them", async () => {
  const control = new VolatileControl();
  const scheduling = new Scheduling(control);
  const atMs = Date.now();
  for (const id of ["a", "b"]) {
    const offer = nodeOffer(id, { cpuMilli: 1e9, memoryMib: 1e9 });
    await control.propose({ type: "node.join", atMs, offer });
  }
  const resources = { gpu_count: 0, cpu_cores: 1, memory_gb: 1 };
  for (let n = 1; n <= 4; n++) {
    const spec = jobSpec({ name: `job-${n}`, tasks: n === 4 ? 1_000 : 3_000, resources });
    await control.propose({ type: "job.submit", atMs, jobId: jobId(n), spec });
  }
  const tasks: number[] = [];
  let isSameTurn = false;
  control.onApplied((command: ControlCommand) => {
    if (command.type !== "plan.commit") return;
    expect(isSameTurn).toBe(false);
    isSameTurn = true;
    setImmediate(() => (isSameTurn = false));
    tasks.push(command.starts.reduce((sum, { placements }) => sum + placements.length, 0));
  });
  await schedulingStep({ ...scheduling, control, acknowledgeMs: 1_000 });
  expect(tasks).toEqual([3_000, 3_000, 4_000]);
  expect([...control.state.jobs.values()].map(({ state }) => state)).not.toContain("accepted");
});

test("a job that no node can run: waits as long as a setting says, or until one can", async () => {
  const control = new VolatileControl();
  const scheduling = new Scheduling(control);
  const atMs = Date.now();
  control.state.cluster.set("version", NEWEST_VERSION);
  const putting = { type: "setting.put", name: "unsatisfiable_wait", value: 600 } as const;
  await control.propose({ ...putting, atMs: atMs - 700_000 });
  const node = (id: string, gpuCount: number) =>
    control.propose({ type: "node.join", atMs, offer: nodeOffer(id, { gpuCount }) });
  const submit = (n: number, submittedAtMs: number) => {
    const spec = jobSpec({ name: `job-${n}`, resources: { gpu_count: 8 } });
    return control.propose({ type: "job.submit", atMs: submittedAtMs, jobId: jobId(n), spec });
  };
  const step = () => schedulingStep({ ...scheduling, control, acknowledgeMs: 1_000 });
  const states = () => [1, 2].map((n) => control.state.jobs.get(jobId(n))?.state);
  await submit(1, atMs - 601_000);
  await submit(2, atMs - 500_000);
  await node("a", 4);
  expect(await step()).toBe(atMs + 100_000);
  expect(states()).toEqual(["failed", "accepted"]);
  expect(control.state.jobs.get(jobId(1))?.failure?.reason).toBe("Unsatisfiable");
  await node("b", 8);
  await step();
  expect(states()).toEqual(["failed", "scheduled"]);
});
