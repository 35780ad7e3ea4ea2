// holds: sched-incremental

import { seededRandom } from "@heddle/base/random";
import { type SchedulingSnapshot, snapshotFrom } from "@heddle/scheduler/cycle/scheduling-cycle";
import type { QueuedJob } from "@heddle/scheduler/model";
import { entryKey } from "@heddle/scheduler/plan-entry";
import { decide } from "@heddle/scheduler/schedule";
import { expect, test } from "vitest";
import type { ControlCommand } from "../../command.ts";
import { ReplicatedControl } from "../../replicated-control.ts";
import { RandomCommands } from "../testing/random-commands.ts";
import { jobId, jobSpec, nodeOffer } from "../testing/specs.ts";
import { IncrementalSnapshot } from "./incremental-snapshot.ts";
import { schedulingInput } from "./scheduling-input.ts";

const SEQUENCES = Number(process.env["HEDDLE_PROPERTY_RUNS"] ?? 30);
const COMMANDS = 60;

/** All that a decision can see of a snapshot, in an order of its own. */
function seen({ view: layout, queue, projectOf, shared, settings }: SchedulingSnapshot) {
  const { roster } = layout;
  const running = [...layout.running.values()].sort(byId);
  return {
    nodes: roster.present(),
    free: roster.present().map(({ id }) => layout.free.rowOf(roster.position(id)!)),
    capacity: roster.present().map(({ id }) => layout.capacity.rowOf(roster.position(id)!)),
    totals: roster.totals,
    running,
    jobs: layout.running.jobs,
    held: layout.running.heldBy("default"),
    ofProject: [...layout.running.ofProject("default")].sort(byId),
    leavingFor: running.map(({ evicting }) =>
      evicting?.forEntry ? layout.running.leavingFor(evicting.forEntry) : 0,
    ),
    targets: layout.running.targets
      .targets()
      .map((target) => JSON.stringify(target))
      .sort(),
    queue: [...queue].sort(byEntry),
    project: projectOf("default"),
    shared,
    settings: { ...settings, targets: [] },
  };
}

function byId(a: { readonly id: string }, b: { readonly id: string }): number {
  return a.id < b.id ? -1 : 1;
}

function byEntry(a: QueuedJob, b: QueuedJob): number {
  return entryKey(a.entry) < entryKey(b.entry) ? -1 : 1;
}

/** Some jobs request shared storage, and some commands change a setting. */
function vary(command: ControlCommand, random: () => number): Record<string, unknown> {
  if (command.type === "job.submit" && random() < 0.3) {
    const resources = { ...command.spec.resources, shared_storage_gb: Math.ceil(random() * 60) };
    return { ...command, spec: { ...command.spec, resources } };
  }
  if (command.type !== "clock.tick" || random() > 0.3) return { ...command };
  const [name, value] =
    random() < 0.5 ? ["shared_storage_gb", 100] : ["overcommit_ratio", random() < 0.5 ? 0.5 : 2];
  return { type: "setting.put", atMs: command.atMs, name, value };
}

function runSequence(seed: number): number {
  const random = seededRandom(seed);
  const control = new ReplicatedControl();
  const commands = new RandomCommands(random, control.state);
  const live = new IncrementalSnapshot(control.state, control.jobs);
  let checks = 0;
  for (let index = 1; index <= COMMANDS; index++) {
    const command = JSON.parse(JSON.stringify(vary(commands.next(), random)));
    control.apply({ type: "control", command }, index);
    // Some checks come after many commands, some after each.
    if (random() < 0.4) continue;
    checks++;
    const at = { index, nowMs: command.atMs + Math.floor(random() * 1_000) };
    const snapshot = live.take(at);
    const built = schedulingInput(control.state, control.jobs, at);
    const { settings } = snapshot;
    const rebuilt = snapshotFrom({ ...built, settings });
    expect(seen(snapshot)).toEqual(seen(snapshotFrom(built)));
    expect(decide(snapshot)).toEqual(decide(rebuilt));
    // The decision has left no trace.
    expect(seen(snapshot)).toEqual(seen(rebuilt));
  }
  return checks;
}

test(`incremental snapshot: equals that of the whole state (${SEQUENCES} sequences)`, () => {
  const first = Math.floor(Math.random() * 2 ** 31);
  console.log(`first seed ${first}`);
  let checks = 0;
  for (let n = 0; n < SEQUENCES; n++) {
    try {
      checks += runSequence(first + n);
    } catch (error) {
      throw new Error(`seed ${first + n}: ${String(error)}`, { cause: error });
    }
  }
  expect(checks).toBeGreaterThan(SEQUENCES * 10);
});

test("incremental snapshot: changes of jobs and nodes do not rebuild the view", () => {
  const control = new ReplicatedControl();
  const live = new IncrementalSnapshot(control.state, control.jobs);
  const apply = (command: Record<string, unknown>) => {
    const made = { atMs: 1_000, ...command } as unknown as ControlCommand;
    return control.apply({ type: "control", command: made }, control.index + 1);
  };
  const view = () => live.take({ index: control.index, nowMs: 1_000 });
  apply({ type: "node.join", offer: nodeOffer("a") });
  const { view: layout } = view();
  const free = [...layout.free.gpuFree];
  apply({ type: "job.submit", jobId: jobId(1), spec: jobSpec() });
  const { starts } = decide(view());
  const plan = { overcommitRatio: 1, acknowledgeMs: 1_000, admitted: [jobId(1)], starts };
  apply({ type: "plan.commit", ...plan, unsatisfiable: [], preemptions: [], expired: [] });
  expect(view().view).toBe(layout);
  expect([...layout.free.gpuFree]).not.toEqual(free);
  const report = { jobId: jobId(1), attempt: 1, rank: 0, phase: "exited", exit: { endedAtMs: 1 } };
  apply({ type: "tasks.report", nodeId: "a", reports: [{ ...report, phase: "running" }] });
  apply({ type: "tasks.report", nodeId: "a", reports: [report] });
  expect(view().view).toBe(layout);
  expect([...layout.free.gpuFree]).toEqual(free);
  apply({ type: "node.join", offer: nodeOffer("b") });
  apply({ type: "node.drain", nodeId: "a", byMs: 2_000 });
  apply({ type: "node.lost", nodeIds: ["b"], fencedAtMs: 2_000 });
  apply({ type: "node.join", offer: nodeOffer("b", { labels: { zone: "x" } }) });
  expect(view().view).toBe(layout);
  expect(layout.roster.present()).toMatchObject([
    { id: "a", state: "drained" },
    { id: "b", state: "ready", labels: { zone: "x" } },
  ]);
});
