import { createHash, randomBytes } from "node:crypto";
import { chownSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import {
  type ServerProcess,
  startServer,
  stopServers,
  ticketOf,
} from "@heddle/parameters/testing/server-processes";
import { TEXT, TINY_MODEL } from "@heddle/training/testing/tiny-language-model";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type LeaderSession, TestLeader, taskId } from "../../../test/test-leader.ts";

// The executor of training jobs in a whole worker, with a real parameter server.

const waitMs = 120_000;

let leader: TestLeader;
let server: ServerProcess;

beforeEach(async () => {
  leader = new TestLeader();
  await leader.listen();
  server = await startServer();
});

afterEach(async () => {
  await leader.close();
  await stopServers();
});

const training = (algorithm: string, config: object): Partial<TaskSpec> => ({
  executor: "training",
  algorithm,
  config: JSON.stringify(config),
  cpuMilli: 1_000,
});

async function start(
  session: LeaderSession,
  spec: Partial<TaskSpec>,
  task = taskId(),
  devices: readonly number[] = [0],
) {
  await session.lease(spec, task, [...devices]);
  const parameterServers = [server.address];
  const jobToken = randomBytes(32);
  const ticket = ticketOf(task, parameterServers);
  session.send({ start: { task, peers: [], parameterServers, nodes: ["n"], jobToken, ticket } });
}

/** The processes that run the trainer's program. */
function trainers(): number[] {
  return ourProcesses().filter((pid) => commandOf(pid)[1]?.endsWith("trainer/dist/main.js"));
}

function ourProcesses(): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.filter((pid) => environmentOf(pid).includes(leader.folder)).map(Number);
}

const procFile = (pid: string | number, name: string): string => {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "latin1");
  } catch {
    return "";
  }
};
const commandOf = (pid: string | number) => procFile(pid, "cmdline").split("\0");
const environmentOf = (pid: string | number) => procFile(pid, "environ");

// holds: train-executor
test("training: a job runs to its artifacts; no secret in arguments or environment", async () => {
  await leader.startWorker();
  expect(leader.register?.executors).toContain("training");
  expect(leader.register?.algorithms).toEqual(["ppo", "weave"]);
  expect(leader.register?.environments).toEqual([
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
  ]);
  const session = leader.open();
  await start(session, training("ppo", { total_timesteps: 20_000 }));
  await until("the trainer runs", () => trainers().length === 1, waitMs);
  const [pid = 0] = trainers();
  expect(commandOf(pid).join(" ") + environmentOf(pid)).not.toContain("a-token-for-tests-only");
  const { exit, progress } = await session.reaches("exited", taskId(), waitMs);
  expect(exit).toMatchObject({ exitCode: 0, reason: "" });
  const names = exit?.artifacts?.map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining(["lineage.json", "metrics.jsonl", "policy.onnx"]));
  expect(JSON.parse(progress?.line ?? "{}")).toMatchObject({ backend: "onnx", device: "cpu" });
});

// holds: sec-trainer-environment
test("training: no variable of its job runs code in the trainer", async () => {
  await leader.startWorker();
  const session = leader.open();
  const stolen = join(leader.folder, "stolen");
  const thief = join(leader.folder, "thief.cjs");
  writeFileSync(thief, `require("node:fs").writeFileSync(${JSON.stringify(stolen)}, "ran");`);
  const environment = {
    NODE_OPTIONS: `--require ${thief}`,
    LD_PRELOAD: "/none.so",
    ENV: thief,
    PATH: "/none",
    PLUGIN_LEVEL: "3",
  };
  await start(session, { ...training("ppo", { total_timesteps: 20_000 }), environment });
  await until("the trainer runs", () => trainers().length === 1, waitMs);
  const variables = environmentOf(trainers()[0] ?? 0).split("\0");
  const { exit } = await session.reaches("exited", taskId(), waitMs);
  expect(exit).toMatchObject({ exitCode: 0, reason: "" });
  expect(variables).toContain("PLUGIN_LEVEL=3");
  expect(
    variables.filter((each) => /^(NODE_OPTIONS|LD_PRELOAD|ENV|PATH=\/none)/.test(each)),
  ).toEqual([]);
  expect(existsSync(stolen)).toBe(false);
});

test.each([
  ["weave", 4],
  ["ppo", 256],
])(
  "%s: a task that must leave names its checkpoint with the step of it",
  async (algorithm, each) => {
    const text = join(leader.folder, "text.txt");
    writeFileSync(text, TEXT);
    const long = {
      ...TINY_MODEL,
      data: text,
      total_steps: 1_000_000,
      local_steps: each,
      warm_start_steps: 0,
    };
    const games = { total_timesteps: 50_000_000, num_envs: 4, num_steps: 64 };
    await leader.startWorker();
    const session = leader.open();
    await start(session, training(algorithm, algorithm === "ppo" ? games : long));
    const latest = () => session.status()?.progress;
    const stepNow = () => (JSON.parse(latest()?.line ?? "{}") as { step?: number }).step ?? 0;
    await until("it trains", () => stepNow() > 0, waitMs);
    session.send({ checkpoint: { task: taskId() } });
    await until("it continues", () => stepNow() > (latest()?.checkpointStep ?? Infinity), waitMs);
    session.send({ stop: { task: taskId(), checkpoint: true, graceMs: 30_000, why: "suspend" } });
    const { progress } = await session.reaches("exited", taskId(), waitMs);
    const round = Number(/-r0*(\d+)-/.exec(progress?.checkpoint ?? "")?.[1]);
    expect(progress?.checkpointStep).toBe(round * each);
  },
);

// holds: train-executor
test("worker kill -9: the next process adopts the trainer, its checkpoint and its end", async () => {
  const worker = await leader.startWorker();
  const first = leader.open();
  await start(first, training("ppo", { total_timesteps: 10_000_000 }));
  await until("it makes progress", () => first.status()?.progress !== null, waitMs);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  expect(trainers()).toHaveLength(1);
  await leader.startWorker();
  const second = leader.open(2);
  await until("it is adopted", () => second.status()?.phase === "running", waitMs);
  second.send({ checkpoint: { task: taskId() } });
  await until("its checkpoint is reported", () => !!second.status()?.progress?.checkpoint, waitMs);
  second.send({ stop: { task: taskId(), checkpoint: false, graceMs: 20_000, why: "enough" } });
  const { exit } = await second.reaches("exited", taskId(), waitMs);
  expect(exit).toMatchObject({ asked: true, message: "stopped: enough" });
  expect(trainers()).toEqual([]);
});

// holds: train-lost-node
test("lost node: its trainer is lost where others may continue, also after a return", async () => {
  const worker = await leader.startWorker();
  const first = leader.open();
  await start(first, { ...training("ppo", { total_timesteps: 10_000_000 }), failureTolerance: 1 });
  await until("the trainer runs", () => trainers().length === 1, waitMs);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  // The trainer's shell first, so that it keeps no exit status.
  const isOurs = (args: string[]) =>
    args.includes("heddle-task") && args.some((each) => each.startsWith(leader.folder));
  const shells = readdirSync("/proc")
    .filter((pid) => isOurs(commandOf(pid)))
    .map(Number);
  expect(shells).toHaveLength(1);
  for (const pid of [...shells, ...trainers()]) process.kill(pid, "SIGKILL");
  await leader.startWorker();
  const { exit } = await leader.open(2).reaches("exited", taskId(), waitMs);
  expect(exit).toMatchObject({ reason: "NodeLost", signal: "" });
});

// holds: train-cuda-missing
test("cuda: without a usable GPU it is not retried, nor is a wrong config", async () => {
  const gpu = { uuid: "simulated-0", name: "H100", memoryBytes: 80 * 2 ** 30, fault: "" };
  // The second counts as a real one, where this machine has none.
  const simulatedGpus = [true, false].map((simulated, index) => ({ ...gpu, index, simulated }));
  await leader.startWorker({ simulatedGpus });
  const session = leader.open();
  let tasks = 0;
  const isBare = !existsSync("/dev/nvidia0");
  if (!isBare) process.stderr.write("skipped: a GPU whose provider does not load; one is here\n");
  const cuda = { device: "cuda" };
  for (const [config, devices, expected] of [
    [cuda, [], /`config.device` is cuda and the task holds no real GPU: ask for one/],
    [
      cuda,
      [0],
      /the task holds no real GPU: what it was given is simulated: .*`config.device` auto/,
    ],
    [{ num_minibatches: 7 }, [0], /Invalid value for 'config.num_minibatches': .*512/],
    ...(isBare
      ? [
          [
            cuda,
            [1],
            /is cuda and this worker cannot compute on it: .*; install .*device` auto/,
          ] as const,
        ]
      : []),
  ] as const) {
    const task = taskId(tasks++);
    await start(session, training("ppo", config), task, devices);
    const { exit } = await session.reaches("exited", task, waitMs);
    expect(exit?.reason).toBe("Unsatisfiable");
    expect(exit?.message).toMatch(expected);
  }
});

// holds: train-unknown
test("training: unknown environments and missing data are not retried", async () => {
  await leader.startWorker();
  const session = leader.open();
  const missing = "/there/is/no/such/file.csv";
  const line = { program: "regression", data: missing, total_steps: 5 };
  for (const [rank, spec, expected] of [
    [
      0,
      training("ppo", { environment: "Atlantis-v1" }),
      /no environment "Atlantis-v1": .*CartPole/,
    ],
    [
      1,
      training("weave", line),
      /the training data \/there\/is\/no\/such\/file.csv cannot be read/,
    ],
  ] as const) {
    await start(session, spec, taskId(rank));
    const { exit } = await session.reaches("exited", taskId(rank), waitMs);
    expect(exit).toMatchObject({ reason: "Unsatisfiable", exitCode: 65 });
    expect(exit?.message).toMatch(expected);
  }
});

// holds: train-executor
test.each([
  ["of one node", ["n", "n"]],
  ["of two nodes", ["n", "m"]],
])("leaving: two tasks %s end with rank 0's checkpoint before their grace", async (_, nodes) => {
  await leader.startWorker();
  const session = leader.open();
  const spec = { ...training("ppo", { total_timesteps: 10_000_000, num_steps: 64 }), tasks: 2 };
  const tasks = [taskId(0), taskId(1)];
  for (const task of tasks) await session.lease(spec, task, [0]);
  const parameterServers = [server.address];
  const jobToken = randomBytes(32);
  const ticket = ticketOf(taskId(), parameterServers);
  for (const task of tasks)
    session.send({ start: { task, peers: [], parameterServers, jobToken, ticket, nodes } });
  for (const task of tasks) {
    await until("it makes progress", () => !!session.status(task)?.progress?.line, waitMs);
  }
  const askedAtMs = performance.now();
  for (const task of tasks) {
    session.send({ stop: { task, checkpoint: true, graceMs: 150_000, why: "suspend" } });
  }
  for (const task of tasks) {
    const { exit } = await session.reaches("exited", task, waitMs);
    expect(exit).toMatchObject({ asked: true, message: "stopped: suspend" });
  }
  expect(session.status(taskId(0))?.progress?.checkpoint).toMatch(/^a1-r\d+-s1$/);
  expect(session.status(taskId(1))?.progress?.checkpoint).toBe("");
  const seconds = (performance.now() - askedAtMs) / 1_000;
  console.info(`both had left after ${seconds.toFixed(1)} s`);
  expect(seconds).toBeLessThan(60);
});

/** Takes each path where tasks of this node could meet, as soon as its folder is there. */
const SQUATTER = `
const fs = require("node:fs");
const { ROOTS, PREFIX } = process.env;
const seen = new Set();
setInterval(() => {
  for (const root of ROOTS.split(",")) {
    let names = [];
    try { names = fs.readdirSync(root); } catch {}
    for (const name of names.filter((each) => each.startsWith(PREFIX))) {
      const folder = root + "/" + name;
      for (const socket of ["0-0", "1-0", "n-0"]) {
        try {
          fs.writeFileSync(folder + "/" + socket, "", { flag: "wx" });
          console.log("TOOK " + socket);
        } catch {}
      }
      if (!seen.has(folder)) console.log("tried " + folder);
      seen.add(folder);
    }
  }
}, 2);
console.log("waits");
`;

// holds: task-socket-first
test.each([
  { level: "own user", user: undefined },
  ...(process.getuid?.() === 0 ? [{ level: "Landlock", user: 1_913_000_003 }] : []),
])("training: another job cannot take the tasks' socket first ($level)", async ({ user }) => {
  if (user !== undefined) chownSync(leader.folder, user, user);
  await leader.startWorker({}, { HOME: leader.folder }, user);
  const session = leader.open();
  const node = createHash("sha256").update(leader.nodeId).digest("hex").slice(0, 8);
  const roots = [tmpdir(), "/var/tmp", join(leader.folder, "worker/sockets")];
  const environment = { ROOTS: roots.join(","), PREFIX: `heddle-sockets-${node}-` };
  const squatter = taskId(5, 1, "job_B");
  await session.lease({ command: [process.execPath, "-e", SQUATTER], environment }, squatter);
  session.send({ start: { task: squatter, peers: [] } });
  await until("it waits for the folder", () => leader.log(5) === "waits\n", waitMs);
  const spec = { ...training("ppo", { total_timesteps: 10_000_000, num_steps: 64 }), tasks: 2 };
  const tasks = [taskId(0), taskId(1)];
  for (const task of tasks) await session.lease(spec, task, [0]);
  const parameterServers = [server.address];
  const ticket = ticketOf(taskId(), parameterServers);
  const given = { peers: [], parameterServers, jobToken: randomBytes(32), ticket };
  for (const task of tasks) session.send({ start: { task, ...given, nodes: ["n", "n"] } });
  // With mounts of its own it does not even see the folder.
  const sees = user === undefined;
  if (sees) await until("it tried their folder", () => leader.log(5).includes("tried "), waitMs);
  await until("the job trains", () => !!session.status(taskId(0))?.progress?.line, waitMs);
  expect(leader.log(5)).not.toContain("TOOK");
});
