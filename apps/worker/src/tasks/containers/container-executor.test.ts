// holds: task-container

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import { afterAll, beforeAll, describe, expect, type TestContext, test, vi } from "vitest";
import {
  forgetPodman,
  image,
  podmanNetworkFault,
  preparePodman,
  removePodmanContainers,
} from "../../../test/podman.ts";
import { type LeaderSession, TestLeader, taskId } from "../../../test/test-leader.ts";
import { ProcessScan } from "../executors/process-scan.ts";
import { readProcess } from "../executors/process-tree.ts";

const timeoutMs = 120_000;

const why = preparePodman();
if (why) console.log(`containers are not tested: ${why}`);
const offline = why === "" ? podmanNetworkFault() : why;
if (why === "" && offline) console.log(`networks of containers are not tested: ${offline}`);
afterAll(forgetPodman);

const spec = { executor: "container", containerImage: image, memoryBytes: 64e6, cpuMilli: 500 };
const sh = (line: string) => ({ ...spec, command: ["/bin/sh", "-c", line] });

/** Ids of the processes of a task's container, as this machine counts. */
function processesOfTask(nodeId: string, rank: number): number[] {
  const own = `${nodeId}/job_A/1/${rank}`;
  return ProcessScan.now()
    .marked()
    .flatMap(({ pid, mark }) => (mark === own ? [pid] : []));
}

/** A leader whose worker leaves no container behind. */
async function newLeader({ onTestFinished }: TestContext): Promise<TestLeader> {
  const leader = new TestLeader();
  onTestFinished(() => closeLeader(leader));
  await leader.listen();
  return leader;
}

async function closeLeader(leader: TestLeader): Promise<void> {
  const { nodeId } = leader;
  await leader.close();
  removePodmanContainers(nodeId);
}

/** Engines are slow on a busy machine. */
async function start(session: LeaderSession, what: Partial<TaskSpec>, rank = 0): Promise<void> {
  await session.lease(what, taskId(rank));
  session.send({ start: { task: taskId(rank), peers: [] } });
  await session.reaches("running", taskId(rank), timeoutMs);
}

/** A folder with a `podman` that hangs, fails, or is too old for the probe. */
function faultyPodman({ onTestFinished }: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "heddle-faults-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const real = execFileSync("/bin/sh", ["-c", "command -v podman"]).toString().trim();
  const script = [
    "#!/bin/sh",
    `[ -e ${folder}/hangs ] && exec sleep 600`,
    `[ -e ${folder}/is-old ] && [ "$1" = run ] && exit 125`,
    `exec ${real} "$@"`,
  ];
  writeFileSync(join(folder, "podman"), `${script.join("\n")}\n`, { mode: 0o755 });
  return {
    environment: { PATH: `${folder}:${process.env["PATH"]}` },
    set: (fault: "hangs" | "is-old") => writeFileSync(join(folder, fault), ""),
    clear: (fault: "hangs" | "is-old") => rmSync(join(folder, fault)),
  };
}

describe.skipIf(why !== "")("one worker", () => {
  let leader: TestLeader;
  let session: LeaderSession;
  beforeAll(async () => {
    leader = new TestLeader();
    await leader.listen();
    await leader.startWorker();
    session = leader.open();
  });
  afterAll(() => closeLeader(leader));

  test.concurrent("a container has its environment, mounts and limits; code, lines and log return", async () => {
    const task = taskId(0);
    const lines = [
      'echo "$GREETING from rank $RANK $QUOTED"; echo oh >&2; echo again > /dev/stderr',
      "echo kept > $HEDDLE_CHECKPOINT_DIR/c1; echo left > $HEDDLE_ARTIFACT_DIR/a1",
      "echo '{\"step\":7}' >> $HEDDLE_PROGRESS_FILE; pwd",
      // A task cannot see the worker's own records and logs.
      "cd $HEDDLE_ARTIFACT_DIR; ls ..; printf end; exit 7",
    ];
    await start(
      session,
      {
        ...sh(lines.join("\n")),
        environment: { GREETING: "two\nlines", QUOTED: `"a" 'b' #c`, LD_PRELOAD: "/none.so" },
      },
      task.rank ?? 0,
    );
    const { exit } = await session.reaches("exited", task, timeoutMs);
    expect(exit).toMatchObject({ exitCode: 7, reason: "ExitCode" });
    expect(exit?.lastLines).toContain("oh");
    await until("the log was received", () => leader.isComplete(), timeoutMs);
    expect(leader.log()).toBe(
      `two\nlines from rank 0 "a" 'b' #c\n/\nartifacts\nprogress.jsonl\nwork\nend`,
    );
    expect(leader.log(0, "stderr")).toContain("oh\nagain\n");
    expect(existsSync(join(leader.folder, "worker/checkpoints/job_A/c1"))).toBe(true);
    expect(session.progressLines.at(-1)).toBe('{"step":7}');
  });

  test.concurrent("stopping ends a container that ignores SIGTERM, without remains", async () => {
    const task = taskId(1);
    await start(session, sh("trap '' TERM; echo up; while :; do sleep 1; done"), task.rank ?? 0);
    await until("it is up", () => leader.log(1) === "up\n", timeoutMs);
    session.send({ stop: { task, checkpoint: false, graceMs: 300, why: "cancelled" } });
    const { exit } = await session.reaches("exited", task, timeoutMs);
    expect(exit).toMatchObject({ signal: "SIGKILL", asked: true, reason: "" });
    expect(processesOfTask(leader.nodeId, 1)).toEqual([]);
    // Of this node only: another run on the machine may have ended with its containers.
    const own = ["--filter", `label=heddle.node=${leader.nodeId}`, "--format", "{{.Names}}"];
    const left = execFileSync("podman", ["ps", "--all", ...own]).toString();
    expect(left).not.toContain("job_A-1-1\n");
  });

  test.concurrent("an unavailable image is an ImagePull, a missing program a LaunchFailed", async () => {
    const [noImage, noProgram] = [taskId(2), taskId(3)];
    await session.lease({ ...spec, containerImage: "localhost:1/no:1", command: [] }, noImage);
    await session.lease({ ...spec, command: ["/no-program"] }, noProgram);
    for (const task of [noImage, noProgram]) session.send({ start: { task, peers: [] } });
    const { exit: pulled } = await session.reaches("exited", noImage, timeoutMs);
    expect(pulled).toMatchObject({ reason: "ImagePull" });
    expect(pulled?.message).toContain("podman could not pull the image localhost:1/no:1");
    const { exit: launched } = await session.reaches("exited", noProgram, timeoutMs);
    expect(launched).toMatchObject({ reason: "LaunchFailed" });
    expect(launched?.message).toMatch(/could not start a container of .*no-program/);
  });

  test.concurrent("memory beyond the bound is an OutOfMemory", async () => {
    const task = taskId(4);
    await start(session, sh("exec tail /dev/zero"), task.rank ?? 0);
    expect((await session.reaches("exited", task, timeoutMs)).exit?.reason).toBe("OutOfMemory");
  });

  test.concurrent("the checkpoint signal reaches a nested program; SIGTERM lets it leave", async () => {
    const task = taskId(5);
    const inner =
      "trap 'echo {\\\"checkpoint\\\":\\\"c5\\\"} >> $HEDDLE_PROGRESS_FILE' USR1; trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done";
    await start(
      session,
      sh(`trap : TERM; /bin/sh -c '${inner.replaceAll("'", `'"'"'`)}'`),
      task.rank ?? 0,
    );
    await until("it is up", () => leader.log(5) === "up\n", timeoutMs);
    session.send({ stop: { task, checkpoint: true, graceMs: 60_000, why: "preempted" } });
    const { exit, progress } = await session.reaches("exited", task, timeoutMs);
    expect(exit).toMatchObject({ exitCode: 0, asked: true, reason: "" });
    expect(progress?.checkpoint).toBe("c5");
    expect(leader.log(5)).toBe("up\nbye\n");
  });

  test.concurrent("a container has no capability, and the node's network only on request", async () => {
    const look =
      "while read name value; do case $name in CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo $name $value;; esac; done < /proc/self/status; ls -l /proc/self/ns/net; echo x > /bin/made && echo written";
    await start(session, sh(look), 7);
    await start(session, { ...sh(look), hostNetwork: true, readOnly: true }, 8);
    for (const rank of [7, 8]) {
      await session.reaches("exited", taskId(rank), timeoutMs);
      await until("the log was received", () => leader.isComplete(rank), timeoutMs);
      const none = "0000000000000000";
      expect(leader.log(rank)).toContain(`CapEff: ${none}\nCapBnd: ${none}\n`);
      expect(leader.log(rank)).toContain("NoNewPrivs: 1\nSeccomp: 2\n");
    }
    const network = readlinkSync("/proc/self/ns/net");
    expect(leader.log(7)).not.toContain(network);
    expect(leader.log(8)).toContain(network);
    expect(leader.log(7)).toContain("written");
    expect(leader.log(8)).not.toContain("written");
  });

  test
    .skipIf(offline !== "")
    .concurrent("a gang's containers are reached at their rendezvous ports", async () => {
      const task = taskId(0, 1, "job_G");
      await session.start({ ...sh("echo hello | nc -l -p $MASTER_PORT"), tasks: 2 }, task);
      const [host = "", port = ""] = (session.status(task)?.rendezvous ?? "").split(":");
      const received = await vi.waitFor(
        async () => {
          const socket = connect(Number(port), host);
          const [data] = (await once(socket, "data")) as [Buffer];
          socket.destroy();
          return data.toString();
        },
        { timeout: timeoutMs, interval: 500 },
      );
      expect(received).toBe("hello\n");
      await session.reaches("exited", task, timeoutMs);
    });

  test.concurrent("a program that exceeds its time limit is ended as DeadlineExceeded", async () => {
    const task = taskId(6);
    await start(session, { ...sh("sleep 600"), maxRuntimeMs: 300, graceMs: 100 }, task.rank ?? 0);
    const { exit } = await session.reaches("exited", task, timeoutMs);
    expect(exit).toMatchObject({ reason: "DeadlineExceeded" });
  });
});

test
  .skipIf(why !== "")
  .concurrent(
    "worker kill -9: the next process adopts the container, or the lease ends it",
    async (context) => {
      const leader = await newLeader(context);
      const worker = await leader.startWorker();
      await start(leader.open(1, 4_000), sh("sleep 600"), 1);
      const [init] = processesOfTask(leader.nodeId, 1);
      worker.kill("SIGKILL");
      await until("the worker is gone", () => worker.signalCode !== null);
      // The guard beside the worker ends it with the lease.
      await until("it is gone", () => readProcess(init ?? 0) === undefined, timeoutMs);
      const next = await leader.startWorker();
      const second = leader.open(1, 150_000);
      const { exit: lost } = await second.reaches("exited", taskId(1), timeoutMs);
      expect(lost?.reason).toBe("NodeLost");

      const go = "$HEDDLE_CHECKPOINT_DIR/go";
      await start(
        second,
        sh(`echo before; while [ ! -e ${go} ]; do sleep 0.05; done; echo after; exit 5`),
      );
      await until("the first line came", () => leader.log() === "before\n", timeoutMs);
      next.kill("SIGKILL");
      await until("the worker is gone", () => next.signalCode !== null);
      writeFileSync(join(leader.folder, "worker/checkpoints/job_A/go"), "");
      await until("it has ended meanwhile", () => processesOfTask(leader.nodeId, 0).length === 0);
      await leader.startWorker();
      const { exit } = await leader.open().reaches("exited", taskId(), timeoutMs);
      expect(exit).toMatchObject({ exitCode: 5, reason: "ExitCode" });
      await until("the whole log was received", () => leader.isComplete(), timeoutMs);
      expect(leader.log()).toBe("before\nafter\n");
    },
  );

test
  .skipIf(offline !== "")
  .concurrent(
    "older podman: clients carry the output; a silent engine delays no end",
    async (context) => {
      const leader = await newLeader(context);
      const podman = faultyPodman(context);
      podman.set("is-old");
      await leader.startWorker({}, podman.environment);
      const session = leader.open();

      await session.lease({ ...spec, command: ["/no-program"] }, taskId(2));
      session.send({ start: { task: taskId(2), peers: [] } });
      const { exit: none } = await session.reaches("exited", taskId(2), timeoutMs);
      expect(none).toMatchObject({ reason: "LaunchFailed" });
      expect(none?.message).toMatch(/could not start a container of .*no-program/);

      const go = "$HEDDLE_CHECKPOINT_DIR/go";
      const line = `echo one; while [ ! -e ${go} ]; do sleep 0.1; echo tick; done; echo last; exit 4`;
      await start(session, sh(line));
      await until("lines come", () => leader.log().includes("tick\n"), timeoutMs);
      const client = clientOf(leader);
      expect(client).toBeDefined();
      process.kill(Number(client), "SIGKILL");
      const before = leader.log().length;
      await until("lines come again", () => leader.log().length > before + 50, timeoutMs);
      writeFileSync(join(leader.folder, "worker/checkpoints/job_A/go"), "");
      const { exit } = await session.reaches("exited", taskId(), timeoutMs);
      expect(exit).toMatchObject({ exitCode: 4 });
      expect(leader.log().startsWith("one\ntick\n")).toBe(true);

      await start(session, sh("echo up; sleep 600"), 1);
      await until("it is up", () => leader.log(1) === "up\n", timeoutMs);
      podman.set("hangs");
      session.send({ stop: { task: taskId(1), checkpoint: false, graceMs: 0, why: "cancelled" } });
      const processes = () => processesOfTask(leader.nodeId, 1).filter((pid) => !isPodman(pid));
      await until("it is dead", () => processes().length === 0, timeoutMs);
      await until("it stops", () => session.status(taskId(1))?.phase === "stopping", timeoutMs);
      podman.clear("hangs");
      const { exit: stopped } = await session.reaches("exited", taskId(1), timeoutMs);
      expect(stopped).toMatchObject({ signal: "SIGKILL", reason: "", asked: true });
    },
  );

/** The process that carries the output of the leader's first task. */
function clientOf(leader: TestLeader): number | undefined {
  const own = statSync(join(leader.folder, "worker/jobs/job_A/1.0/logs/stdout")).ino;
  return processesOfTask(leader.nodeId, 0).find((pid) => {
    const { ino } = statSync(`/proc/${pid}/fd/1`, { throwIfNoEntry: false }) ?? {};
    return ino === own && isPodman(pid);
  });
}

function isPodman(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/comm`, "latin1").trim() === "podman";
  } catch {
    return false; // It has ended.
  }
}
