import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, type TestContext, test, vi } from "vitest";
import { shell, TestLeader, taskId, until } from "../../test/test-leader.ts";
import { markedProcesses, readProcess, signalProcess } from "./process-tree.ts";

/** Processes start slowly on a machine that does other things too. */
vi.setConfig({ testTimeout: 90_000 });

async function newLeader({ onTestFinished }: TestContext): Promise<TestLeader> {
  const leader = new TestLeader();
  onTestFinished(() => leader.close());
  await leader.listen();
  return leader;
}

/** How many processes copy output of the worker's tasks. */
function copiers({ nodeId }: TestLeader): number {
  const all = markedProcesses("HEDDLE_OUTPUT_OF");
  return all.filter(({ mark }) => mark.startsWith(`${nodeId}/`)).length;
}

const numbers = (to: number) => Array.from({ length: to }, (_, i) => `${i + 1}\n`).join("");

test.concurrent("what is written by a stream's own name comes whole and in order, up to a SIGKILL, and what copies it ends", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const lines = [
    "echo 1; echo 2 > /dev/stdout; seq 3 20000; echo 20001 > /proc/self/fd/1",
    "seq 20002 39999 > /dev/fd/1; echo a > /dev/stderr; echo b | tee /dev/stderr > /dev/null",
    ": > /dev/stdout; : > /dev/stderr; echo c >&2; echo 40000; kill -9 $$",
  ];
  await session.start(shell(lines.join("; ")));
  const stubborn = "trap '' TERM; echo up; (trap '' TERM; sleep 600) & wait; wait";
  await session.start(shell(stubborn), taskId(1));
  await session.start(shell("sleep 600 & echo done; exit 137"), taskId(2));
  expect((await session.reaches("exited")).exit?.signal).toBe("SIGKILL");
  expect((await session.reaches("exited", taskId(2))).exit).toMatchObject({
    exitCode: 137,
    signal: "",
  });
  await until("the second is up", () => leader.log(1) === "up\n");
  expect(copiers(leader)).toBeGreaterThan(0);
  session.send({ stop: { task: taskId(1), checkpoint: false, graceMs: 100, why: "cancelled" } });
  expect((await session.reaches("exited", taskId(1))).exit?.asked).toBe(true);
  expect(copiers(leader)).toBe(0);
  const isWhole = () => leader.isComplete() && leader.isComplete(0, "stderr");
  await until("both logs are complete", isWhole);
  expect(leader.log()).toBe(numbers(40_000));
  expect(leader.log(0, "stderr")).toBe("a\nb\nc\n");
  await until("the third's log is complete", () => leader.isComplete(2));
  expect(leader.log(2)).toBe("done\n");
});

test.concurrent("kill -9 of the worker takes no byte of what a task prints meanwhile by its streams' names", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const end = join(leader.folder, "end");
  const line = `i=0; until [ -e ${end} ]; do i=$((i+1)); echo $i; echo $i > /dev/stderr; sleep 0.01; done`;
  await leader.open().start(shell(line));
  await until("lines come", () => leader.log().length > 20);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  expect(copiers(leader)).toBeGreaterThan(0);
  await leader.startWorker();
  const next = leader.open(2);
  const before = leader.log().length;
  await until("lines come again", () => leader.log().length > before + 20);
  writeFileSync(end, "");
  expect((await next.reaches("exited")).exit?.exitCode).toBe(0);
  expect(copiers(leader)).toBe(0);
  await until("the logs are complete", () =>
    ["stdout", "stderr"].every((stream) => leader.isComplete(0, stream)),
  );
  const count = leader.log().split("\n").length - 1;
  expect(leader.log()).toBe(numbers(count));
  expect(leader.log(0, "stderr")).toBe(numbers(count));
});

test.concurrent("a process that has left its task and keeps its output open does not hold up the end for ever", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const file = join(leader.folder, "pid");
  const child = `echo $$ > ${file}.new; mv ${file}.new ${file}; exec sleep 600`;
  const away = `env -i PATH="$PATH" setsid sh -c '${child}' &`;
  await session.start(shell(`${away} until [ -e ${file} ]; do sleep 0.05; done; echo done`));
  const { exit } = await session.reaches("exited", taskId(), 40_000);
  expect(exit?.exitCode).toBe(0);
  expect(copiers(leader)).toBe(0);
  await until("the logs are complete", () => leader.isComplete() && leader.isComplete(0, "stderr"));
  expect(leader.log()).toBe("done\n");
  // Where the task has a cgroup it cannot leave that, and is ended.
  const pid = Number(readFileSync(file, "utf8"));
  const isLeft = readProcess(pid) !== undefined;
  expect(/could not be ended still has its output open/.test(leader.log(0, "stderr"))).toBe(isLeft);
  signalProcess(pid, "SIGKILL");
});
