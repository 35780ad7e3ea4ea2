import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { shell, TestLeader, taskId, until } from "../../test/test-leader.ts";

let leader: TestLeader;

beforeEach(async () => {
  leader = new TestLeader();
  await leader.listen();
});

afterEach(() => leader.close());

/** Ids of living processes whose environment names the variable with that value. */
function processesWith(entry: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const isZombie = /^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
        const variables = readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
        return !isZombie && variables.includes(entry);
      } catch {
        return false;
      }
    })
    .map(Number);
}

test("a command runs with its environment; its exit code, last lines and whole output come back", async () => {
  await leader.startWorker();
  const session = leader.open();
  await session.start({
    ...shell(
      'echo "$HEDDLE_RANK of $WORLD_SIZE at $MASTER_PORT"; pwd; echo oh >&2; printf end; exit 7',
    ),
    environment: { A: "b" },
  });
  const { exit, rendezvous } = await session.reaches("exited");
  expect(exit).toMatchObject({ exitCode: 7, reason: "ExitCode" });
  const port = rendezvous.split(":")[1];
  await until(
    "both logs are complete",
    () => leader.isComplete() && leader.isComplete(0, "stderr"),
  );
  expect(leader.log()).toBe(
    `0 of 1 at ${port}\n${join(leader.folder, "worker/jobs/job_A/1.0/work")}\nend`,
  );
  expect(leader.log(0, "stderr")).toBe("oh\n");
  expect(exit?.lastLines).toContain("oh");
  expect(exit?.lastLines).toContain("end");
});

test("a program that does not exist is a LaunchFailed that says what to do", async () => {
  await leader.startWorker();
  const session = leader.open();
  await session.lease({ command: ["no-such-program"] });
  session.send({ start: { task: taskId(), peers: [] } });
  const { exit } = await session.reaches("exited");
  expect(exit?.reason).toBe("LaunchFailed");
  expect(exit?.message).toMatch(/no program "no-such-program".*install it there/);
});

test("stopping kills a task that forks away and ignores SIGTERM, after its grace", async () => {
  await leader.startWorker();
  const session = leader.open();
  const line =
    "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 600\" &) ; sh -c \"trap '' TERM; sleep 600\" & sleep 600";
  await session.start({ ...shell(line), environment: { MARK_OF_TEST: leader.folder } });
  const mark = `MARK_OF_TEST=${leader.folder}`;
  await until("the tree stands", () => processesWith(mark).length >= 5);
  session.send({ stop: { task: taskId(), checkpoint: false, graceMs: 300, why: "cancelled" } });
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ signal: "SIGKILL", reason: "", message: "stopped: cancelled" });
  expect(processesWith(mark)).toEqual([]);
});
