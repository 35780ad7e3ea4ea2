// holds: sched-plan-refusals

import { jobId, jobSpec, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { jobEntry } from "@heddle/scheduler/plan-entry";
import { afterEach, expect, test, vi } from "vitest";
import { VolatileControl } from "../../../test/test-master.ts";
import { PlanRefusals } from "./plan-refusals.ts";
import { Scheduling } from "./scheduling.ts";
import { schedulingStep } from "./scheduling-step.ts";

afterEach(() => {
  vi.useRealTimers();
});

const queued = (id: string, notBeforeMs = 0) => ({ entry: jobEntry(id), notBeforeMs }) as never;
const waitOf = (refusals: PlanRefusals, id: string): number =>
  refusals.delay([queued(id)])[0]!.notBeforeMs;

test("plan refusals: a refused job waits longer each time, and not once it was taken", () => {
  const refusals = new PlanRefusals();
  const waits: number[] = [];
  for (let cycle = 0; cycle < 12; cycle++) {
    refusals.record(["a", "b"].map(jobEntry), [{ entry: jobEntry("a"), why: "quota" }], 1_000);
    waits.push(waitOf(refusals, "a") - 1_000);
  }
  for (const [cycle, wait] of waits.entries()) {
    const step = Math.min(30_000, 100 * 2 ** cycle);
    expect(wait).toBeGreaterThanOrEqual(step / 2);
    expect(wait).toBeLessThanOrEqual(step);
  }
  expect(waitOf(refusals, "b")).toBe(0);
  expect(refusals.counts()).toEqual({ quota: 12 });
  refusals.record([jobEntry("a")], [], 2_000);
  expect(waitOf(refusals, "a")).toBe(0);
  const own = [queued("a", 7)];
  expect(refusals.delay(own)).toBe(own);
});

/** A control plane on which another command comes between each plan and its apply. */
class RacedControl extends VolatileControl {
  plans = 0;

  override async propose(...[command, once]: Parameters<VolatileControl["propose"]>) {
    if (command.type === "plan.commit") {
      this.plans++;
      const quota = { gpuMilli: 0 };
      const atMs = command.atMs;
      await super.propose({ type: "project.set", atMs, name: "default", weight: 1, quota });
      const reply = await super.propose(command, once);
      await super.propose({ type: "project.set", atMs, name: "default", weight: 1, quota: {} });
      return reply;
    }
    return super.propose(command, once);
  }
}

test("plan refusals: a refused plan is not proposed again at once, and is counted", async () => {
  vi.useFakeTimers({ toFake: ["Date"], now: 1_000_000 });
  const control = new RacedControl();
  const atMs = Date.now();
  await control.propose({ type: "node.join", atMs, offer: nodeOffer("a") });
  await control.propose({ type: "job.submit", atMs, jobId: jobId(1), spec: jobSpec() });
  const { cache, plans, cycles, placement } = new Scheduling(control);
  const step = () =>
    schedulingStep({ control, cache, plans, cycles, placement, acknowledgeMs: 1_000 });
  await step();
  expect(control.plans).toBe(1);
  const nextMs = await step();
  expect(control.plans).toBe(1);
  expect(nextMs).toBeGreaterThan(atMs + 49);
  expect(cache.refusals.counts()).toEqual({ quota: 1 });
  expect(plans.blockers(control.state.jobs.get(jobId(1))!)).toMatchObject([{ reason: "Backoff" }]);
  vi.setSystemTime(nextMs!);
  await step();
  expect(control.plans).toBe(2);
});
