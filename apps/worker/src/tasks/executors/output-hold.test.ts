// holds: logs-full-pipe

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { afterEach, beforeEach, expect, test } from "vitest";
import { shell, TestLeader, taskId } from "../../../test/test-leader.ts";
import { TaskDirectory } from "../../records/task-directory.ts";
import type { TaskPlan } from "../../records/task-plan.ts";
import { TaskWatch } from "../task-watch.ts";
import type { TaskHandle } from "./executor.ts";

let leader: TestLeader;
beforeEach(async () => {
  leader = new TestLeader();
  await leader.listen();
});
afterEach(() => leader.close());

/** Numbered lines of a kibibyte, some MiB a second, until the file exists. */
const writeUntil = (file: string) =>
  `pad=$(printf '%01000d' 0); i=0; while [ ! -e ${file} ]; do n=0; while [ $n -lt 64 ]; do n=$((n+1)); i=$((i+1)); echo "$i $pad"; done; sleep 0.01; done; echo "end $i"`;

/** The states (`T` is stopped) of the processes whose environment has the entry. */
function statesOf(entry: string): string[] {
  return readdirSync("/proc").flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const isOfTask = readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(entry);
      const state = /^\d+ \(.*\) (\w)/s.exec(readFileSync(`/proc/${pid}/stat`, "latin1"))?.[1];
      return isOfTask && state && state !== "Z" ? [state] : [];
    } catch {
      return []; // It has ended meanwhile.
    }
  });
}

/** The log is all lines without a gap, and the end. */
function expectWhole(log: string): void {
  const lines = log.trimEnd().split("\n");
  const end = lines.pop();
  lines.forEach((line, i) => {
    if (!line.startsWith(`${i + 1} 0`)) throw new Error(`line ${i + 1} is ${line.slice(0, 80)}`);
  });
  expect(end).toBe(`end ${lines.length}`);
}

test("output hold: a task is stopped at the bound, reports it, and loses no line", async () => {
  await leader.startWorker({ maxLogBytes: 2 ** 20 });
  const session = leader.open();
  leader.stall();
  const mark = (name: string) => ({ MARK_OF_TEST: `${leader.folder}/${name}` });
  const [enough, never] = [join(leader.folder, "enough"), join(leader.folder, "never")];
  await session.start({ ...shell(writeUntil(enough)), environment: mark("goes-on") });
  const leaving = `trap 'echo "end $i"; exit 0' TERM; ${writeUntil(never)}`;
  await session.start({ ...shell(leaving), environment: mark("leaves") }, taskId(1));
  const messageOf = (rank: number) =>
    (JSON.parse(session.status(taskId(rank))?.progress?.line || "{}") as { message?: string })
      .message;
  const said = /^paused: more than 1 MiB of its output wait for the masters/;
  await until("both are stopped, and say so", () =>
    [0, 1].every((n) => said.test(messageOf(n) ?? "")),
  );
  for (const name of ["goes-on", "leaves"]) {
    const entry = `MARK_OF_TEST=${leader.folder}/${name}`;
    // A process that has just forked may wait for a stopped child.
    await until("its processes are stopped", () => {
      const states = statesOf(entry);
      return states.length > 0 && states.every((state) => "TD".includes(state));
    });
  }
  session.send({ stop: { task: taskId(1), checkpoint: false, graceMs: 20_000, why: "drained" } });
  const left = await session.reaches("exited", taskId(1));
  expect(left.exit).toMatchObject({ exitCode: 0, reason: "", asked: true });
  writeFileSync(enough, "");
  expect(session.status()?.phase).toBe("running");
  leader.unstall();
  const { exit } = await session.reaches("exited", taskId(0), 30_000);
  expect(exit).toMatchObject({ exitCode: 0, reason: "" });
  for (const rank of [0, 1]) {
    await until(`the log of rank ${rank} is whole`, () => leader.isComplete(rank));
    expect(leader.log(rank).length).toBeGreaterThan(2 ** 20);
    expectWhole(leader.log(rank));
  }
  expect(messageOf(0)).toBeUndefined();
});

test("output hold: the time of a stop does not count as time without steps", async () => {
  const spec = { maxRuntimeMs: 0, hangTimeoutMs: 1_000, memoryBytes: 0, diskBytes: 0 };
  const nowhere = TaskDirectory.of("/", { jobId: "job_A", attempt: 1, rank: 0, incarnation: 0 });
  const watch = new TaskWatch({ spec } as unknown as TaskPlan, nowhere, 0, 0);
  const reasonAt = async (nowMs: number) =>
    (await watch.check(undefined as unknown as TaskHandle, nowMs))?.reason;
  watch.onHeld(5_000);
  expect(await reasonAt(5_500)).toBeUndefined();
  expect(await reasonAt(6_500)).toBe("Hang");
});
