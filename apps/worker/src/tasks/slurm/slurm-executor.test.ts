// holds: task-slurm

import { spawnSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@heddle/base/testing/until";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { executorCases } from "../../../test/executor-kit.ts";
import { SlurmCluster, whyNoSlurm } from "../../../test/slurm.ts";
import { type LeaderSession, shell, TestLeader, taskId } from "../../../test/test-leader.ts";

const why = whyNoSlurm();
const slurm = new SlurmCluster();
const settings = { isIsolationOptional: true, slurm: { partition: "main", options: [] } };
const isEnded = (line: string) => line.endsWith("COMPLETING");

beforeAll(async () => {
  if (why === undefined) await slurm.start();
});
afterAll(async () => {
  if (why === undefined) await slurm.close();
});

executorCases({
  title: "jobs of Slurm",
  why,
  spec: { executor: "process", cpuMilli: 500, memoryBytes: 64e6 },
  settings: () => settings,
  environment: () => slurm.environment,
  remains: () => slurm.jobs.filter((line) => !isEnded(line)),
});

describe.skipIf(why !== undefined)("a worker before Slurm", () => {
  const leader = new TestLeader();
  let session: LeaderSession;
  beforeAll(async () => {
    await leader.listen();
    await leader.startWorker(settings, slurm.environment);
    session = leader.open();
  });
  afterAll(() => leader.close());

  it("Slurm: a worker offers what the partition has, for processes alone", () => {
    const { executors, hardware } = leader.register ?? {};
    expect(executors).toEqual(["process"]);
    expect(hardware?.limits).toMatchObject([{ cpuMilli: 8_000, memoryBytes: 8_000 * 2 ** 20 }]);
    expect(hardware?.gpus?.map(({ name }) => name)).toEqual(["h100", "h100"]);
  });

  it("Slurm: a task gets its devices, and no secret reaches Slurm's files", async () => {
    const secret = `s-${"x".repeat(20)}-secret`;
    const what = { ...shell('echo "$HEDDLE_GPUS of $SLURM_GPUS_ON_NODE"; sleep 2') };
    await session.lease(what, taskId(0), [0, 1]);
    const secretVariables = { TOKEN: secret };
    session.send({ start: { task: taskId(0), peers: [], secretVariables } });
    await session.reaches("running", taskId(0));
    const { stdout } = spawnSync("grep", ["-rls", secret, slurm.folder, leader.folder]);
    expect(stdout.toString()).toBe("");
    const { exit } = await session.reaches("exited", taskId(0));
    expect(exit).toMatchObject({ exitCode: 0, reason: "" });
    await until("the log was received", () => leader.isComplete(0));
    expect(leader.log(0)).toBe("0,1 of 2\n");
  });

  it("Slurm: a job that scancel ends is a lost node, not the program's fault", async () => {
    await session.start(shell("echo up; sleep 600"), taskId(1));
    await until("the program is up", () => leader.log(1).includes("up"));
    slurm.run("scancel", "--me");
    const { exit } = await session.reaches("exited", taskId(1));
    expect(exit).toMatchObject({ reason: "NodeLost" });
    expect(exit?.message).toContain("Slurm ended its job");
  });

  it("Slurm: a cancel that reaches the program before its runner is a lost node", async () => {
    await session.start(shell("echo $$ $PPID; exec sleep 600"), taskId(8));
    await until("the program is up", () => leader.log(8).endsWith("\n"));
    for (const pid of leader.log(8).trim().split(" ")) {
      process.kill(Number(pid), "SIGTERM");
      await delay(300);
    }
    const { exit } = await session.reaches("exited", taskId(8));
    expect(exit).toMatchObject({ reason: "NodeLost" });
  });

  it("Slurm: what it cannot run is refused with its words; a gang too", async () => {
    const large = { ...shell("true"), memoryBytes: 900e9 };
    await session.lease(large, taskId(2));
    await session.lease({ ...shell("true"), tasks: 2 }, taskId(3));
    for (const rank of [2, 3]) session.send({ start: { task: taskId(rank), peers: [] } });
    const { exit } = await session.reaches("exited", taskId(2));
    expect(exit).toMatchObject({ reason: "Unsatisfiable" });
    expect(exit?.message).toMatch(/Slurm did not take the task's job: sbatch: .*emory/);
    const { exit: gang } = await session.reaches("exited", taskId(3));
    expect(gang).toMatchObject({ reason: "Unsatisfiable" });
    expect(gang?.message).toContain("jobs of one task");
  });

  it("Slurm: a job that waits in its queue can be cancelled; one that waits starts", async () => {
    const all = { cpuMilli: 8_000, memoryBytes: 64e6 };
    await session.start({ ...shell("sleep 600"), ...all }, taskId(4));
    for (const rank of [5, 6]) {
      await session.lease({ ...shell(`echo ${rank}`), ...all }, taskId(rank));
      session.send({ start: { task: taskId(rank), peers: [] } });
    }
    const waiting = () => slurm.jobs.filter((line) => line.endsWith("PENDING")).length;
    await until("two jobs wait", () => waiting() === 2);
    const stop = { checkpoint: false, graceMs: 0, why: "cancelled" };
    session.send({ stop: { task: taskId(5), ...stop } });
    const { exit } = await session.reaches("exited", taskId(5));
    expect(exit).toMatchObject({ asked: true });
    await until("one job waits", () => waiting() === 1);
    session.send({ stop: { task: taskId(4), ...stop } });
    const { exit: next } = await session.reaches("exited", taskId(6));
    expect(next).toMatchObject({ exitCode: 0, reason: "" });
  });

  it("Slurm: a task continues and ends as it does while the controller is down", async () => {
    await session.start(shell("echo up; sleep 3; echo down; exit 4"), taskId(7));
    const back = await slurm.pauseController();
    await until("the program has ended", () => leader.log(7) === "up\ndown\n");
    await delay(500);
    back();
    const { exit } = await session.reaches("exited", taskId(7));
    expect(exit).toMatchObject({ exitCode: 4, reason: "ExitCode" });
  });
});
