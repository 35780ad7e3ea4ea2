import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { expect, test } from "vitest";
import { newLeader, shell, taskId } from "../../test/test-leader.ts";

test.concurrent("leaving: a checkpoint is requested and reported first, then SIGTERM is sent", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const line = [
    'trap \'touch $HEDDLE_CHECKPOINT_DIR/c1; echo "{\\"step\\": 9, \\"checkpoint\\": \\"c1\\"}" >> $HEDDLE_PROGRESS_FILE\' USR1',
    "trap 'echo left; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
  ].join("; ");
  await session.start(shell(line));
  await until("the traps are set", () => leader.log() === "ready\n");
  session.send({ stop: { task: taskId(), checkpoint: true, graceMs: 20_000, why: "preempt" } });
  const { exit, progress } = await session.reaches("exited");
  expect(exit).toMatchObject({ exitCode: 0, reason: "", asked: true });
  expect(progress?.checkpoint).toBe("c1");
  await until("the last line came", () => leader.log() === "ready\nleft\n");
  expect(existsSync(join(leader.folder, "worker/checkpoints/job_A/c1"))).toBe(true);
});

test.concurrent("checkpoint: has the step that was reported with it, not a later one", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const lines = [{ step: 9, checkpoint: "c1" }, { step: 12 }];
  const progress = (rank: number) => session.status(taskId(rank))?.progress;
  const write = (line: object) => `echo '${JSON.stringify(line)}' >> $HEDDLE_PROGRESS_FILE`;
  await session.start(shell(lines.map(write).join("; ")));
  const named = [...lines, { step: 15, checkpoint: "c2", checkpoint_step: 14 }];
  await session.start(shell(named.map(write).join("; ")), taskId(1));
  await session.reaches("exited");
  await session.reaches("exited", taskId(1));
  expect(progress(0)).toMatchObject({ line: '{"step":12}', checkpoint: "c1", checkpointStep: 9 });
  expect(progress(1)).toMatchObject({ checkpoint: "c2", checkpointStep: 14 });
});

// holds: life-checkpoints-kept
test.concurrent("retention: the newest checkpoints over all attempts, none after the job", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const save = (name: string) =>
    `mkdir $HEDDLE_CHECKPOINT_DIR/${name}; echo '{"checkpoint": "${name}"}' >> $HEDDLE_PROGRESS_FILE`;
  const saved = (job = "job_A") => {
    const folder = join(leader.folder, "worker/checkpoints", job);
    return existsSync(folder) ? readdirSync(folder).filter((name) => !name.startsWith(".")) : [];
  };
  for (const attempt of [1, 2, 3]) {
    const task = { ...taskId(), attempt };
    const command = [save(`a${attempt}`), save(`b${attempt}`)].join("; ");
    await session.start({ ...shell(command), keepCheckpoints: 2 }, task);
    await session.reaches("exited", task);
    expect(saved().sort()).toEqual([`a${attempt}`, `b${attempt}`]);
    session.send({ forget: { task } });
  }
  await session.start({ ...shell("true") }, { ...taskId(), jobId: "job_B" });
  await session.reaches("exited", { ...taskId(), jobId: "job_B" });
  session.send({ forget: { task: { ...taskId(), jobId: "job_B" } } });
  await until("it is asked whose have ended", () => session.folders.includes("job_B"));
  expect(session.folders).toEqual(["job_A", "job_B"]);
  session.send({ forgetCheckpoints: { jobIds: [], emptyJobIds: ["job_B", "job_A"] } });
  const isOfJob = (name: string) => !name.startsWith(".");
  const folders = () => readdirSync(join(leader.folder, "worker/checkpoints")).filter(isOfJob);
  await until("the empty folder is gone", () => !folders().includes("job_B"));
  expect(saved().sort()).toEqual(["a3", "b3"]);
  session.send({ forgetCheckpoints: { jobIds: ["job_A", ".."], emptyJobIds: [] } });
  await until("the other is gone too", () => folders().length === 0);
  expect(existsSync(join(leader.folder, "worker/jobs"))).toBe(true);
});

test.concurrent("pruning: a job continues without it; its next attempt cannot be launched", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const lines = [
    "cd /; for c in c1 c2 c3; do mkdir $HEDDLE_CHECKPOINT_DIR/$c; done",
    `until [ -e ${leader.folder}/go ]; do sleep 0.05; done`,
    'for c in c1 c2 c3; do echo "{\\"checkpoint\\": \\"$c\\"}" >> $HEDDLE_PROGRESS_FILE; done',
    "echo said; exit 3",
  ];
  await session.start(shell(lines.join("; ")));
  const checkpoints = join(leader.folder, "worker/checkpoints/job_A");
  await until("they are made", () => existsSync(join(checkpoints, "c3")));
  rmSync(checkpoints, { recursive: true });
  writeFileSync(checkpoints, "x");
  writeFileSync(join(leader.folder, "go"), "");
  expect((await session.reaches("exited")).exit).toMatchObject({
    exitCode: 3,
    lastLines: ["said"],
  });
  const next = taskId(0, 2);
  await session.lease(shell("true"), next);
  const { exit } = await session.reaches("exited", next);
  expect(exit?.reason).toBe("LaunchFailed");
  expect(exit?.message).toMatch(/checkpoints\/job_A, but there is a file or a link: remove it/);
});

// holds: task-files-bounded
test.concurrent("names: a task that fills its list and progress blocks no other", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const program = `
    const fs = require("node:fs");
    const names = (count) => Array.from({ length: count }, (_, i) => "n" + i);
    const { HEDDLE_CHECKPOINT_DIR: folder, HEDDLE_PROGRESS_FILE: progress } = process.env;
    fs.writeFileSync(folder + "/.heddle-rank-0.json", JSON.stringify(names(1_500_000)));
    const lines = names(30_000).map((checkpoint) => JSON.stringify({ checkpoint }));
    fs.writeFileSync(progress, lines.join("\\n") + "\\n");
    setInterval(() => fs.appendFileSync(progress, lines.slice(-9_000).join("\\n") + "\\n"), 100);`;
  await session.start({ command: [process.execPath, "-e", program] });
  await until("it has named one", () => Boolean(session.status(taskId())?.progress?.checkpoint));
  await session.start(shell("echo there"), { ...taskId(), jobId: "job_B" });
  const { exit } = await session.reaches("exited", { ...taskId(), jobId: "job_B" });
  expect(exit).toMatchObject({ exitCode: 0 });
  expect(session.status(taskId())?.phase).toBe("running");
});

// holds: task-files-bounded
test.concurrent("claim: one that a task has enlarged is neither read whole nor kept", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const session = leader.open(1, 30_000, "ours");
  const peak = () =>
    Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${worker.pid}/status`, "utf8"))?.[1]);
  const note = "$HEDDLE_CHECKPOINT_DIR/.heddle-cluster";
  // The file has a hole and takes no space, but 500 MB of memory to read.
  await session.start(shell(`rm -f ${note}; truncate -s 500M ${note}`));
  await session.reaches("exited");
  const path = join(leader.folder, "worker/checkpoints/job_A/.heddle-cluster");
  expect(statSync(path).size).toBe(500 * 2 ** 20);
  const before = peak();
  await session.start(shell("true"), taskId(0, 2));
  await session.reaches("exited", taskId(0, 2));
  expect(peak() - before).toBeLessThan(200_000);
  expect(readFileSync(path, "utf8")).toBe("ours");
});
