// holds: logs-full-disk

import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@heddle/base/testing/until";
import { afterEach, beforeEach, expect, type TestContext, test } from "vitest";
import { shell, TestLeader, taskId } from "../../test/test-leader.ts";

let leader: TestLeader;
let disk: string;
/** Only root can mount a separate disk. */
let isMounted = false;

beforeEach(async () => {
  leader = new TestLeader();
  await leader.listen();
  disk = join(leader.folder, "disk");
  mkdirSync(disk);
  isMounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=8m", "tmpfs", disk]).status === 0;
});

afterEach(async () => {
  if (isMounted) spawnSync("umount", ["--lazy", disk]);
  await leader.close();
});

function skipUnlessMounted(context: TestContext): void {
  if (isMounted) return;
  console.log("a full disk is not tested: mounting a tmpfs takes root");
  context.skip();
}

function fill(file: string): void {
  expect(() => writeFileSync(file, Buffer.alloc(16 * 2 ** 20))).toThrow("ENOSPC");
  expect(statfsSync(disk).bavail).toBe(0);
}

test("full disk: a task that cannot begin is lost, and none comes until there is room", async (context) => {
  skipUnlessMounted(context);
  await leader.startWorker({ dataDirectory: join(disk, "worker") });
  expect(leader.register?.executors).toContain("process");
  const session = leader.open();
  await session.lease(shell("sleep 600"));
  await session.reaches("leased");
  const full = join(disk, "full");
  fill(full);
  session.begin();
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ reason: "NodeLost", message: expect.stringContaining("ENOSPC") });
  const fault = () => leader.heartbeats.at(-1)?.executorFault ?? "";
  await until("the reason is reported", () => fault().includes("its disk takes no files: ENOSPC"));
  await until("no task can come", () => leader.register?.executors.length === 0);
  rmSync(full);
  await until("tasks can come", () => leader.register?.executors.includes("process") === true);
  await until("no reason is left", () => fault() === "");
  await session.start(shell("echo room"), taskId(1));
  await until("there is room again", () => leader.log(1) === "room\n");
});

test("full disk: a task that ends without room for its output is lost", async (context) => {
  skipUnlessMounted(context);
  await leader.startWorker({ dataDirectory: join(disk, "worker") });
  const session = leader.open();
  const full = join(disk, "full");
  const wait = `until [ -e ${full} ]; do sleep 0.05; done; sleep 1`;
  await session.start(shell(`${wait}; head -c 65536 /dev/zero; exit 0`));
  fill(full);
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({
    reason: "NodeLost",
    message: expect.stringMatching(/disk .* full/),
  });
});

test("unwritable record: a task whose start cannot be recorded is killed", async () => {
  const dataDirectory = join(leader.folder, "worker");
  await leader.startWorker({ dataDirectory });
  const session = leader.open();
  await session.lease(shell("sleep 600"));
  const { jobId, attempt, rank } = taskId();
  // In the place of the record's draft.
  mkdirSync(join(dataDirectory, "jobs", `${jobId}/${attempt}.${rank}/task.json.new`));
  session.begin();
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ reason: "Internal", signal: "SIGKILL" });
});

test("full disk: lost lines are marked, and a new task is refused with the reason", async (context) => {
  skipUnlessMounted(context);
  await leader.startWorker({ dataDirectory: join(disk, "worker") });
  const session = leader.open();
  const [full, more] = [join(disk, "full"), join(leader.folder, "more")];
  const steps = [
    "echo before",
    `until [ -e ${full} ]; do sleep 0.05; done`,
    // Lines that do not fit in the file's last block.
    "pad=$(printf '%02000d' 0)",
    `until [ -e ${more} ]; do echo lost $pad; sleep 0.05; done 2> /dev/null`,
    "echo after; sleep 600",
  ];
  await session.start(shell(steps.join("; ")));
  await until("it has begun", () => leader.log() === "before\n");
  fill(full);
  await session.lease(shell("true"), taskId(1));
  const { exit } = await session.reaches("exited", taskId(1));
  expect(exit?.reason).toBe("NodeLost");
  expect(exit?.message).toMatch(/the worker worker-1 could not take it: .*ENOSPC/);
  // The worker checks ten times a second.
  await delay(4_000);
  rmSync(full);
  const mark = /^\[heddle: the worker's disk was full: .* may be lost\]$/m;
  await until("the stream says so", () => mark.test(leader.log()));
  await until("the other stream says so", () => mark.test(leader.log(0, "stderr")));
  const lost = /^\[heddle: a part of this output could not be written .* is lost\]$/m;
  await until("it says where, too", () => lost.test(leader.log()));
  writeFileSync(more, "");
  await until("it writes again", () => leader.log().endsWith("after\n"));
  await session.start(shell("echo room"), taskId(2));
  await until("there is room again", () => leader.log(2) === "room\n");
});
