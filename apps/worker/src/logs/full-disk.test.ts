// holds: logs-full-disk

import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@heddle/base/testing/until";
import { afterEach, beforeEach, expect, test } from "vitest";
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

test("full disk: lost lines are marked, and a new task is refused with the reason", async (context) => {
  if (!isMounted) {
    console.log("a full disk is not tested: mounting a tmpfs takes root");
    context.skip();
  }
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
  expect(() => writeFileSync(full, Buffer.alloc(16 * 2 ** 20))).toThrow("ENOSPC");
  expect(statfsSync(disk).bavail).toBe(0);
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
