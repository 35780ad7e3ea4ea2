// holds: task-removal

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { expect, test } from "vitest";
import { newLeader, shell, taskId } from "../../test/test-leader.ts";

/** Folders of any depth, without rights for their owner, and with names that are not UTF-8. */
const HOARD = [
  "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; echo deep > big",
  "cd $BEGIN; printf x > \"$(printf '\\377')\"; mkdir \"$(printf 'd\\376')\"; printf x > \"$(printf 'd\\376/\\377')\"",
  "mkdir barred; printf x > barred/x; chmod 0 barred",
].join("; ");

test.concurrent("removal: folders of any depth, mode and name go with their task and job", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const line = ["work", "checkpoints"].map(
    (place) => `BEGIN=${place === "work" ? "$PWD" : "$HEDDLE_CHECKPOINT_DIR"}; cd $BEGIN; ${HOARD}`,
  );
  await session.start(shell(`${line.join("; ")}; echo made`));
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ exitCode: 0, lastLines: ["made"] });
  const [jobs, checkpoints] = ["jobs", "checkpoints"].map((name) =>
    join(leader.folder, "worker", name),
  ) as [string, string];
  expect(existsSync(join(checkpoints, `job_A/${"d/".repeat(300)}big`))).toBe(true);
  session.send({ forget: { task: taskId() } });
  await until("its files and its job's folder are gone", () => readdirSync(jobs).length === 0);
  session.send({ forgetCheckpoints: { jobIds: ["job_A"], emptyJobIds: [] } });
  await until("its checkpoints are gone", () => !existsSync(join(checkpoints, "job_A")));
});

test.concurrent("removal: a slow one blocks no command of the leader", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  await session.start(shell("true"));
  await session.reaches("exited");
  const work = join(leader.folder, "worker/jobs/job_A/1.0/work");
  // It is never empty: it cannot be removed while this runs.
  const fill = `process.stdout.write("go"); for (let i = 0; ; i++) require("fs").writeFileSync("${work}/" + i, "")`;
  const filler = spawn(process.execPath, ["-e", fill], { stdio: ["ignore", "pipe", "ignore"] });
  context.onTestFinished(() => void filler.kill("SIGKILL"));
  await once(filler.stdout, "data");
  session.send({ forget: { task: taskId() } });
  await session.start(shell("echo there"), taskId(0, 1, "job_B"));
  const { exit } = await session.reaches("exited", taskId(0, 1, "job_B"));
  expect(exit).toMatchObject({ exitCode: 0, lastLines: ["there"] });
  expect(session.error).toBeUndefined();
  filler.kill("SIGKILL");
  const jobs = join(leader.folder, "worker/jobs");
  await until("its files are gone", () => !readdirSync(jobs).includes("job_A"));
});

test.concurrent("disk bound: a task with too many files to count exceeds it, and is notified", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const line = "i=0; while [ $i -lt 70 ]; do mkdir d; cd d; i=$((i+1)); done; sleep 600";
  await session.start({ ...shell(line), diskBytes: 1_000_000 });
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ reason: "ExitCode" });
  expect(exit?.message).toMatch(/more than can be counted .* 64 levels of folders/);
});
