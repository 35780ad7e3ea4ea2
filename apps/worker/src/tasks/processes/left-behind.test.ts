// holds: task-stop

import { chownSync, readdirSync, readFileSync } from "node:fs";
import { until } from "@heddle/base/testing/until";
import { expect, type TestContext, test } from "vitest";
import { newLeader, shell, taskId } from "../../../test/test-leader.ts";

// Programs that leave their task's session, parents and environment. The worker of these tests has a
// user without privileges, so that neither another user nor, usually, a cgroup identifies them.

const isRoot = process.getuid?.() === 0;
/** Without an entry in the password database, as in containers. */
const plainUser = isRoot ? 1_913_000_002 : undefined;
const seconds = `${1_100_000 + process.pid}`;
const leaves = `setsid env -i /bin/sh -c '(/bin/sleep ${seconds} &) ; exit'`;

test.for([
  ["stopped", `${leaves}; echo gone; sleep 600`],
  ["ended by itself", `${leaves}; echo gone`],
] as const)("left behind: a daemon ends with a task that was %s", async ([how, line], context) => {
  const { leader } = await plainLeader(context);
  const session = leader.open();
  await session.lease(shell(line));
  session.send({ start: { task: taskId(), peers: [] } });
  await until("it has left", () => leader.log() === "gone\n");
  if (how === "stopped") {
    await until("it runs", () => sleepers().length === 1);
    session.send({ stop: { task: taskId(), checkpoint: false, graceMs: 100, why: "cancelled" } });
  }
  const { exit } = await session.reaches("exited");
  expect(sleepers()).toEqual([]);
  expect(exit).toMatchObject(
    how === "stopped" ? { message: "stopped: cancelled" } : { exitCode: 0 },
  );
});

test("left behind: a daemon of a killed worker's task ends with the lease", async (context) => {
  const { leader, worker } = await plainLeader(context);
  const session = leader.open(1, 12_000);
  await session.start(shell(`${leaves}; echo gone; sleep 600`));
  await until("it has left", () => leader.log() === "gone\n" && sleepers().length === 1);
  worker.kill("SIGKILL");
  await until("it is gone with the lease", () => sleepers().length === 0);
});

async function plainLeader(context: TestContext) {
  const leader = await newLeader(context);
  if (plainUser !== undefined) chownSync(leader.folder, plainUser, plainUser);
  const worker = await leader.startWorker({}, { HOME: leader.folder }, plainUser);
  return { leader, worker };
}

/** Processes that sleep for this long. */
const sleepers = () => processesWith((command) => command.join(" ") === `/bin/sleep ${seconds}`);

function processesWith(isWanted: (command: readonly string[]) => boolean): string[] {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return isWanted(readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0").slice(0, -1));
    } catch {
      return false; // It has ended.
    }
  });
}
