import { spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { expect, test } from "vitest";
import { newLeader, shell, taskId } from "../../../test/test-leader.ts";

/** For tests that wait for its end; longer than pauses of a busy machine. */
const leaseMs = 12_000;

/** Ids of living processes whose environment has the variable with that value. */
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

// holds: task-process
test.concurrent("process: environment, exit code, last lines and whole output", async (context) => {
  const leader = await newLeader(context);
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

// holds: task-links
test.concurrent("artifacts: a folder replaced by a link fails its task; a replaced log loses it", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const session = leader.open();
  // The test replaces the paths, since an isolated task cannot.
  const of = (rank: number, path: string) =>
    join(leader.folder, `worker/jobs/job_A/1.${rank}`, path);
  await session.start(shell("while ! test -e go; do sleep 0.05; done"));
  await until("its folder is there", () => existsSync(of(0, "artifacts")));
  rmSync(of(0, "artifacts"), { recursive: true });
  symlinkSync("/etc", of(0, "artifacts"));
  writeFileSync(of(0, "work/go"), "");
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ reason: "Internal", artifacts: [] });
  expect(exit?.message).toMatch(/its artifacts: their folder, .* replaced by a link/);
  await session.start(shell("sleep 600"), taskId(1));
  const stdout = of(1, "logs/stdout");
  await until("its log is there", () => existsSync(stdout));
  rmSync(stdout);
  symlinkSync("/etc/hostname", stdout);
  worker.kill("SIGKILL");
  await once(worker, "exit");
  await leader.startWorker();
  const again = leader.open(2);
  await until("it has reported its tasks", () => again.inventory !== undefined);
  expect(again.status(taskId(1))).toBeUndefined();
  expect(leader.log(1)).toBe("");
});

// holds: task-launch-error
test.concurrent("launch: a missing program is a LaunchFailed with advice", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  await session.lease({ command: ["no-such-program"] });
  session.send({ start: { task: taskId(), peers: [] } });
  const { exit } = await session.reaches("exited");
  expect(exit?.reason).toBe("LaunchFailed");
  expect(exit?.message).toMatch(/no program "no-such-program".*install it there/);
});

// holds: task-stop
test.concurrent("stop: kills a task that forks away and ignores SIGTERM, after its grace", async (context) => {
  const leader = await newLeader(context);
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

// holds: task-adopt
test.concurrent("worker kill -9: the next process adopts the task, its exit code and its log", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const first = leader.open();
  const go = join(leader.folder, "go");
  await first.start(
    shell(`echo before; while [ ! -e ${go} ]; do sleep 0.05; done; echo after; exit 3`),
  );
  await until("the first line came", () => leader.log() === "before\n");
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  writeFileSync(go, "");
  await leader.startWorker();
  const second = leader.open();
  const { exit } = await second.reaches("exited");
  expect(exit).toMatchObject({ exitCode: 3, reason: "ExitCode" });
  await until("the whole log was received", () => leader.isComplete());
  expect(leader.log()).toBe("before\nafter\n");
});

test.concurrent("sockets: a worker that ends removes those of killed processes", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker({}, { TMPDIR: leader.folder });
  const listen = `require("node:net").createServer().listen(process.argv[1].replace("PID", process.pid), () => process.kill(process.pid, "SIGKILL"))`;
  const { pid } = spawnSync(process.execPath, [
    "--eval",
    listen,
    join(leader.folder, "heddle-data-PID-a1.sock"),
  ]);
  const socket = join(leader.folder, `heddle-data-${pid}-a1.sock`);
  expect(existsSync(socket)).toBe(true);
  const exited = once(worker, "exit");
  worker.kill("SIGTERM");
  await exited;
  expect(existsSync(socket)).toBe(false);
});

test.concurrent("worker stop: masters have ends and last lines before the lease is released", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const session = leader.open();
  const slow = "trap 'sleep 0.5; echo last; exit 0' TERM; echo first; while :; do sleep 0.05; done";
  await session.start({ ...shell(slow), graceMs: 30_000 });
  await until("the first line came", () => leader.log() === "first\n");
  const guard = `HEDDLE_LEASE_GUARD=${leader.nodeId}`;
  expect(processesWith(guard)).toHaveLength(1);
  const exited = once(worker, "exit");
  worker.kill("SIGTERM");
  const [code] = await exited;
  expect(code).toBe(0);
  expect(session.status()?.exit).toMatchObject({ exitCode: 0, message: "its worker was stopped" });
  expect([leader.log(), leader.isComplete()]).toEqual(["first\nlast\n", true]);
  await until("the session has ended", () => session.error !== undefined);
  expect(processesWith(guard)).toEqual([]);
});

// holds: task-lease-guard
test.concurrent("worker kill -9: its tasks end with the lease, and are reported lost", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const first = leader.open(1, leaseMs);
  await first.start({ ...shell("sleep 600"), environment: { MARK_OF_TEST: leader.folder } });
  const mark = `MARK_OF_TEST=${leader.folder}`;
  await until("the task runs", () => processesWith(mark).length > 0);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  expect(processesWith(mark).length).toBeGreaterThan(0);
  // The guard beside the worker ends them.
  await until("the tasks are gone with the lease", () => processesWith(mark).length === 0);
  await leader.startWorker();
  const second = leader.open();
  const { exit } = await second.reaches("exited");
  expect(exit?.reason).toBe("NodeLost");
  expect(processesWith(mark)).toEqual([]);
});

// holds: life-sigstop
test.concurrent("stopped worker: its task ends with the lease; later lines do not count", async (context) => {
  const leader = await newLeader(context);
  const worker = await leader.startWorker();
  const session = leader.open(1, leaseMs);
  const counted = join(leader.folder, "counted");
  const line = `i=0; while :; do i=$((i+1)); echo line $i; echo $i >> ${counted}; sleep 0.05; done`;
  await session.start({ ...shell(line), environment: { MARK_OF_TEST: leader.folder } });
  await until("lines come", () => leader.log().length > 0);
  worker.kill("SIGSTOP");
  const lastCounted = () => Number(/(\d+)\n\d*$/.exec(readFileSync(counted, "utf8"))?.[1]);
  const stoppedAt = lastCounted();
  // The task continues under the lease; then the guard ends it, since a stopped worker cannot.
  const mark = `MARK_OF_TEST=${leader.folder}`;
  await until("the task is gone with the lease", () => processesWith(mark).length === 0);
  expect(lastCounted()).toBeGreaterThan(stoppedAt);
  worker.kill("SIGCONT");
  const { exit } = await session.reaches("exited");
  expect(exit?.reason).toBe("NodeLost");
  expect(processesWith(`MARK_OF_TEST=${leader.folder}`)).toEqual([]);
  await until("what was written under the lease came", () => leader.isComplete());
  const last = Number(/line (\d+)\n$/.exec(leader.log())?.[1]);
  expect(last).toBeLessThanOrEqual(stoppedAt + 4);
});

// holds: task-lease
test.concurrent("lease: without renewals it expires, and its tasks end with it", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open(1, leaseMs);
  await session.start({ ...shell("sleep 600"), environment: { MARK_OF_TEST: leader.folder } });
  session.renews = false;
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ reason: "NodeLost", message: "the worker's lease has expired" });
  expect(processesWith(`MARK_OF_TEST=${leader.folder}`)).toEqual([]);
});

// holds: task-bounds
test.concurrent("memory: beyond the bound it is an OutOfMemory", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const program = "const a = []; setInterval(() => a.push(Buffer.alloc(16e6, 1)), 20)";
  await session.lease({ command: [process.execPath, "-e", program], memoryBytes: 200e6 });
  session.send({ start: { task: taskId(), peers: [] } });
  const { exit } = await session.reaches("exited", taskId(), 50_000);
  expect(exit?.reason).toBe("OutOfMemory");
  expect(exit?.message).toContain("resources.memory_gb");
});

// holds: task-bounds
test.concurrent("watch: no new steps are a Hang; a task past its time is DeadlineExceeded", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const stuck =
    "echo '{\"step\": 5}' >> $HEDDLE_PROGRESS_FILE; while :; do echo '{\"step\": 5}' >> $HEDDLE_PROGRESS_FILE; sleep 0.1; done";
  await session.start({ ...shell(stuck), hangTimeoutMs: 2_000 });
  await session.start({ ...shell("sleep 600"), maxRuntimeMs: 1_000 }, taskId(1));
  expect((await session.reaches("exited")).exit?.reason).toBe("Hang");
  expect(JSON.parse(session.status()?.progress?.line ?? "{}")).toEqual({ step: 5 });
  const late = await session.reaches("exited", taskId(1));
  expect(late.exit?.reason).toBe("DeadlineExceeded");
});

test.concurrent("watch: a task that cannot be watched is killed, and its end is reported", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  await session.start({ ...shell("sleep 600"), environment: { MARK_OF_TEST: leader.folder } });
  const progress = join(leader.folder, "worker/jobs/job_A/1.0/progress.jsonl");
  rmSync(progress, { force: true });
  mkdirSync(progress);
  const { exit } = await session.reaches("exited");
  expect(exit).toMatchObject({ signal: "SIGKILL", reason: "Internal" });
  expect(exit?.message).toMatch(/could not watch it any more, and killed it: EISDIR/);
  expect(processesWith(`MARK_OF_TEST=${leader.folder}`)).toEqual([]);
});

test.concurrent("checkpoints: a list that cannot be kept does not affect the task", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  await session.start(
    shell(
      `mkdir -p $HEDDLE_CHECKPOINT_DIR/.heddle-rank-0.json/x; echo '{"checkpoint": "c1"}' >> $HEDDLE_PROGRESS_FILE`,
    ),
  );
  const { exit, progress } = await session.reaches("exited");
  expect(exit).toMatchObject({ exitCode: 0, reason: "" });
  expect(progress?.checkpoint).toBe("c1");
});

test.concurrent("progress: at the job's interval; checkpoints and the last line at once", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const go = join(leader.folder, "go");
  const line = [
    'say() { printf "$1" >> $HEDDLE_PROGRESS_FILE; }; say \'{"step": 1}\\n\'',
    `until [ -e ${go}1 ]; do sleep 0.05; done`,
    'say \'{"step": 2}\\n{"step": 3, "checkpoint": "c3"}\\n\'',
    `until [ -e ${go}2 ]; do sleep 0.05; done`,
    'for n in 4 5 6; do say "{\\"step\\": $n}\\n"; sleep 0.6; done',
  ].join("; ");
  await session.start({ ...shell(line), progressIntervalMs: 3_600_000 });
  const steps = () =>
    session.progressLines.map((text) => (JSON.parse(text) as { step: number }).step);
  await until("the first is reported", () => steps().length === 1);
  writeFileSync(`${go}1`, "");
  await until("the checkpoint is reported", () => session.status()?.progress?.checkpoint === "c3");
  const received = () => leader.heartbeats.flatMap((heartbeat) => heartbeat?.tasks ?? []);
  await until("heartbeats report it", () => received().at(-1)?.progress?.checkpoint === "c3");
  writeFileSync(`${go}2`, "");
  expect((await session.reaches("exited")).exit?.exitCode).toBe(0);
  expect(steps()).toEqual([1, 3, 6]);
});

// holds: task-fencing
test.concurrent("leaders: a later one ends the earlier session; an earlier one is refused", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const first = leader.open(5);
  await first.start(shell("sleep 600"));
  const second = leader.open(6);
  await until("the first is ended", () => first.error !== undefined);
  await until("the second has the inventory", () => second.inventory !== undefined);
  expect(second.inventory?.map(({ phase }) => phase)).toEqual(["running"]);
  const late = leader.open(5);
  await until("the late one is refused", () => late.error !== undefined);
  expect(late.error?.message).toContain("term 5 has ended");
  expect(second.error).toBeUndefined();
});

// holds: task-fencing
test.concurrent("fencing: a command for an older attempt neither leases nor starts a task", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const ran = join(leader.folder, "ran");
  const spec = { ...shell(`echo old >> ${ran}`), executor: "process" };
  // The older attempt holds a place when the later one arrives, and is started after that.
  await session.lease(spec, taskId(0, 1));
  await session.start(shell("sleep 600"), taskId(1, 2));
  session.send({ start: { task: taskId(0, 1), peers: [] } });
  session.send({ lease: { task: taskId(2, 1), spec, devices: [], gpuMilli: 0 } });
  session.send({ start: { task: taskId(2, 1), peers: [] } });
  // Commands are executed in order: the answer to this one follows the others' effects.
  session.send({ stop: { task: taskId(9), checkpoint: false, graceMs: 0, why: "the end" } });
  await session.reaches("exited", taskId(9));
  expect(session.status(taskId(0, 1))?.phase).toBe("leased");
  expect(session.status(taskId(2, 1))).toBeUndefined();
  expect(session.status(taskId(1, 2))?.phase).toBe("running");
  expect(existsSync(ran)).toBe(false);
});

test.concurrent("commands: are idempotent; a stopped task never starts", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const count = join(leader.folder, "starts");
  await session.start(shell(`echo x >> ${count}; sleep 600`));
  await until("it has begun", () => existsSync(count));
  session.send({ start: { task: taskId(), peers: [] } });
  session.send({
    lease: { task: taskId(), spec: { executor: "process" }, devices: [], gpuMilli: 0 },
  });
  session.send({ stop: { task: taskId(7), checkpoint: false, graceMs: 0, why: "cancelled" } });
  await session.reaches("exited", taskId(7));
  session.send({
    lease: { task: taskId(7), spec: { executor: "process" }, devices: [], gpuMilli: 0 },
  });
  session.send({ stop: { task: taskId(), checkpoint: false, graceMs: 0, why: "enough" } });
  await session.reaches("exited");
  expect(readFileSync(count, "utf8")).toBe("x\n");
  expect(session.status(taskId(7))).toMatchObject({ phase: "exited", exit: { asked: true } });
  session.send({ forget: { task: taskId() } });
  session.send({ forget: { task: taskId(7) } });
  // Commands are executed in order: the answer to this one follows the others' effects.
  session.send({ stop: { task: taskId(9), checkpoint: false, graceMs: 0, why: "the end" } });
  await session.reaches("exited", taskId(9));
  const again = leader.open(2);
  await until("the inventory came", () => again.inventory !== undefined);
  expect(again.inventory?.map(({ task }) => task?.rank)).toEqual([9]);
});

test.concurrent("removal: a task whose logs are being shipped leaves nothing on the disk", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  leader.holdAcks();
  // Enough files that their removal takes a while.
  await session.lease(shell("echo done; for i in $(seq 4000); do : > file-$i; done"));
  session.send({ start: { task: taskId(), peers: [] } });
  await session.reaches("exited", taskId(), 60_000);
  await until("its logs are shipped", () => leader.isComplete() || leader.isComplete(0, "stderr"));
  const { jobId = "" } = taskId();
  const tasks = join(leader.folder, "worker", "jobs", jobId);
  const [directory = ""] = readdirSync(tasks);
  const work = join(tasks, directory, "work");
  const files = () => {
    try {
      return readdirSync(work).length;
    } catch {
      return 0;
    }
  };
  expect(files()).toBe(4_000);
  session.send({ forget: { task: taskId() } });
  await until("its work is being removed", () => files() < 4_000);
  leader.releaseAcks();
  await until("its directory is gone", () => !existsSync(join(tasks, directory)));
  // The command is complete when the next one is answered.
  session.send({ stop: { task: taskId(9), checkpoint: false, graceMs: 0, why: "the end" } });
  await session.reaches("exited", taskId(9));
  expect(session.error).toBeUndefined();
  expect(existsSync(tasks)).toBe(false);
});

// holds: task-simulated-gpu
test.concurrent("simulated GPUs: hidden from CUDA; a faulty one ends only its own task", async (context) => {
  const leader = await newLeader(context);
  const gpus = [0, 1].map((index) => ({
    index,
    uuid: `simulated-${index}`,
    name: "H100",
    memoryBytes: 80 * 2 ** 30,
    fault: "",
    simulated: true,
  }));
  await leader.startWorker({ simulatedGpus: gpus, labels: { zone: "a" }, rack: "r1" });
  expect(leader.register).toMatchObject({
    labels: { zone: "a" },
    rack: "r1",
    executors: expect.arrayContaining(["process"]),
  });
  expect(leader.register?.hardware?.gpus.map(({ simulated }) => simulated)).toEqual([true, true]);
  const session = leader.open();
  const line =
    'echo "$HEDDLE_GPUS,$HEDDLE_GPUS_SIMULATED,$(printenv CUDA_VISIBLE_DEVICES || echo unset)"; sleep 600';
  await session.start(shell(line), taskId(0), [0]);
  await session.start(shell(line), taskId(1), [1]);
  await until(
    "both wrote",
    () => leader.log(0) === "0,1,unset\n" && leader.log(1) === "1,1,unset\n",
  );
  writeFileSync(join(leader.folder, "worker/gpu-faults"), "1 Xid 79\n");
  const { exit } = await session.reaches("exited", taskId(1));
  expect(exit).toMatchObject({ reason: "GpuFault", message: "GPU 1 of worker-1: Xid 79" });
  await until(
    "the masters are notified",
    () => leader.heartbeats.at(-1)?.gpus[1]?.fault === "Xid 79",
  );
  expect(leader.heartbeats.at(-1)?.gpus[0]?.fault).toBe("");
  expect(session.status(taskId(0))?.phase).toBe("running");
});

test.concurrent("replacement: on the same worker it has its own files and logs", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open();
  const first = { ...taskId(), incarnation: 0 };
  const second = { ...first, incarnation: 1 };
  await session.start(shell("echo one; sleep 600"), first);
  await until("the first wrote", () => leader.log() === "one\n");
  session.send({ stop: { task: first, checkpoint: false, graceMs: 0, why: "lost" } });
  await session.reaches("exited", first);
  session.send({ forget: { task: first } });
  await session.start(shell("echo start; echo two; sleep 600"), second);
  await until("the second wrote", () => leader.log(0, "stdout", 1, 1) === "start\ntwo\n");
  expect(leader.log()).toBe("one\n");
  // The first one's place is taken: a late command for it starts nothing.
  session.send({ lease: { task: first, spec: { executor: "process" }, devices: [], gpuMilli: 0 } });
  session.send({ stop: { task: second, checkpoint: false, graceMs: 0, why: "enough" } });
  await session.reaches("exited", second);
  const again = leader.open(2);
  await until("the inventory came", () => again.inventory !== undefined);
  expect(again.inventory?.map(({ task }) => task?.incarnation)).toEqual([1]);
});
