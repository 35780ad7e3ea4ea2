// holds: plugins-executors, plugins-executor-retry, executor-kit

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { until } from "@heddle/base/testing/until";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import { createLogger } from "@heddle/observability/logger";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { executorCases } from "../../../test/executor-kit.ts";
import { type LeaderSession, shell, TestLeader, taskId } from "../../../test/test-leader.ts";
import { PluginPlace } from "./plugin-place.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-executors-"));
afterAll(() => rmSync(folder, { recursive: true }));

const example = fileURLToPath(
  new URL("../../../../../examples/plugins/local-jobs.mjs", import.meta.url),
);

/** Settings of a worker whose tasks this executor of a plugin runs. */
function settingsOf(from: string, executor: string, more: readonly string[] = []) {
  const list = join(folder, `${executor}.json`);
  const read = [dirname(example), ...more];
  writeFileSync(list, JSON.stringify({ plugins: [{ from, processes: true, read }] }));
  return { isIsolationOptional: true, plugins: [list], executor };
}

function pluginSet(plugins: readonly string[]): Promise<PluginSet> {
  const log = createLogger({ service: "test", level: "silent" });
  return PluginSet.start(plugins, folder, log, "worker");
}

const settings = settingsOf(example, "local-jobs.groups");

/** Jobs of a worker that `ps` shows. */
function jobsOf(nodeId: string): string[] {
  const text = execFileSync("ps", ["-wweo", "args="], { maxBuffer: 2 ** 26 }).toString();
  const name = `heddle-${nodeId.replace(/\W/g, "")}-`;
  return text.split("\n").filter((line) => line.startsWith("sh -c ") && line.includes(name));
}

executorCases({
  title: "jobs of a plugin",
  why: undefined,
  spec: { executor: "process", cpuMilli: 500, memoryBytes: 64e6 },
  settings: () => settings,
  environment: () => ({}),
  remains: jobsOf,
});

/** As the example, but for the functions of `faults`; those that return nothing go before it. */
function faultyPlugin(name: string, faults: string): string {
  const file = join(folder, `${name}.mjs`);
  writeFileSync(
    file,
    `import { existsSync } from "node:fs";
     import { refusal } from "heddle/plugin-kit";
     import example from ${JSON.stringify(example)};
     const faults = ${faults};
     export default { ...example, name: ${JSON.stringify(name)}, setup(api) {
       const add = (executor) => api.executors.add({ ...executor,
         ...Object.fromEntries(Object.entries(faults).map(([ask, fault]) =>
           [ask, async (argument) => (await fault(argument)) ?? executor[ask](argument)])) });
       example.setup({ ...api, executors: { add } });
     } };`,
  );
  return file;
}

const FAULTS = [
  ["throws", "LaunchFailed", "faulty.groups did not take the task's job: The plugin faulty had"],
  ["refuses", "Unsatisfiable", "no such queue: blue"],
  ["exits", "LaunchFailed", "its process ended with the exit code 7"],
  ["blocks", "LaunchFailed", "its process did not answer"],
] as const;

describe("a worker with an executor of a plugin", () => {
  const leader = new TestLeader();
  let session: LeaderSession;
  beforeAll(async () => {
    await leader.listen();
    // Each fault is that of the tasks whose command names it.
    const file = faultyPlugin(
      "faulty",
      `{ async submit({ jobName }) {
           if (jobName === "throws") throw new Error("my secret detail");
           if (jobName === "refuses") throw refusal("invalid_value", "no such queue: blue");
           if (jobName === "exits") process.exit(7);
           if (jobName === "blocks") for (;;);
         } }`,
    );
    await leader.startWorker(settingsOf(file, "faulty.groups"));
    session = leader.open();
  });
  afterAll(() => leader.close());

  it("plugin executor: the worker offers what it has, for processes alone", () => {
    const { executors, hardware } = leader.register ?? {};
    expect(executors).toEqual(["process"]);
    expect(hardware?.limits?.[0]).toMatchObject({ cpuMilli: expect.any(Number) });
    expect(hardware?.gpus).toEqual([]);
  });

  it("plugin executor: one that throws, refuses, exits or blocks fails that task alone", async () => {
    await session.start(shell("while :; do echo on; sleep 0.1; done"), taskId(0));
    let rank = 1;
    const run = async (spec: Partial<TaskSpec>) => {
      const task = taskId(rank++);
      await session.lease(spec, task);
      session.send({ start: { task, peers: [] } });
      return (await session.reaches("exited", task)).exit;
    };
    for (const [jobName, reason, words] of FAULTS) {
      const exit = await run({ ...shell("true"), jobName });
      expect(exit).toMatchObject({ reason, message: expect.stringContaining(words) });
      expect(exit?.message).not.toContain("my secret detail");
      const isBack = async () => (await run(shell("exit 3")))?.exitCode === 3;
      await until("the plugin is there again", isBack);
    }
    expect(session.status(taskId(0))?.phase).toBe("running");
    const stop = { checkpoint: false, graceMs: 0, why: "cancelled" };
    session.send({ stop: { task: taskId(0), ...stop } });
    const { exit } = await session.reaches("exited", taskId(0));
    expect(exit).toMatchObject({ asked: true, reason: "" });
    await until("no job is left", () => jobsOf(leader.nodeId).length === 0);
  });
});

const REFUSED = [
  ["throws", "{ offer() { throw new Error('no'); } }", "no offer: The plugin throws had an error"],
  ["hangs", "{ offer: () => new Promise(() => {}) }", "no offer: The plugin hangs gave no answer"],
  ["exits", "{ offer() { process.exit(1); } }", "its process ended with the exit code 1"],
  ["nonsense", "{ offer: () => ({ cpus: -1 }) }", "no offer: The plugin nonsense had an error"],
] as const;

it.concurrent.for(REFUSED)(
  "plugin executor: one that cannot say what it has (%s) is refused, counted",
  async ([name, faults, reason]) => {
    const { plugins } = settingsOf(faultyPlugin(name, faults), `${name}.groups`);
    const set = await pluginSet(plugins);
    const error = new PluginPlace(`${name}.groups`, set).ask();
    await expect(error).rejects.toMatchObject({ code: "unavailable" });
    await expect(error).rejects.toThrow(reason);
    const { threw = 0, late = 0, exited = 0 } = set.statuses()[0]?.faults ?? {};
    expect(threw + late + exited).toBe(1);
    set.close();
  },
);

it("plugin executor: one that fails is asked again, and takes tasks once it works", async () => {
  const own = new TestLeader();
  onTestFinished(() => own.close());
  await own.listen();
  const [throws, exits] = ["late-throws", "late-exits"].map((name) => join(folder, name)) as [
    string,
    string,
  ];
  for (const fault of [throws, exits]) writeFileSync(fault, "");
  const file = faultyPlugin(
    "late",
    `{ offer() {
         if (existsSync(${JSON.stringify(throws)})) throw new Error("away");
         if (existsSync(${JSON.stringify(exits)})) process.exit(9);
       } }`,
  );
  const worker = await own.startWorker(settingsOf(file, "late.groups", [folder]));
  expect(own.register?.executors).toEqual([]);
  const fault = () => own.heartbeats.at(-1)?.executorFault ?? "";
  const offers = "late.groups makes no offer: The plugin late";
  await until("its reason is reported", () => fault().includes(`${offers} had an error`));
  rmSync(throws);
  await until("its next reason too", () => fault().includes("ended with the exit code 9"));
  rmSync(exits);
  await until("it registers again", () => own.register?.executors.includes("process") === true);
  await until("no reason is left", () => fault() === "");
  expect(own.register?.hardware?.limits?.[0]).toMatchObject({
    id: expect.stringContaining("late"),
  });
  const session = own.open();
  await session.start(shell("exit 3"), taskId(0));
  expect((await session.reaches("exited", taskId(0))).exit).toMatchObject({ exitCode: 3 });
  expect(worker.exitCode).toBeNull();
});

it("plugin executor: one whose plugin does not start takes tasks once it does", async () => {
  const own = new TestLeader();
  onTestFinished(() => own.close());
  await own.listen();
  const file = join(folder, "refused.mjs");
  writeFileSync(file, "throw new Error('no module');");
  const worker = await own.startWorker(settingsOf(file, "refused.groups"));
  expect(own.register?.executors).toEqual([]);
  const fault = () => own.heartbeats.at(-1)?.executorFault ?? "";
  await until("its reason is reported", () => fault().includes("no module"));
  faultyPlugin("refused", "{}");
  await until("it registers again", () => own.register?.executors.includes("process") === true);
  await until("no reason is left", () => fault() === "");
  expect(worker.exitCode).toBeNull();
});

it("plugin executor: a name that no plugin has is refused with those that there are", async () => {
  const set = await pluginSet(settings.plugins);
  onTestFinished(() => set.close());
  const error = new PluginPlace("local-jobs.group", set).ask();
  await expect(error).rejects.toMatchObject({ code: "invalid_value" });
  await expect(error).rejects.toThrow("no executor local-jobs.group: they have local-jobs.groups");
});
