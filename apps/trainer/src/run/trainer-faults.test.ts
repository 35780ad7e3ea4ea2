import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { shardStatuses } from "@heddle/parameters/shards/shard-set";
import { type ServerProcess } from "@heddle/parameters/testing/server-processes";
import { TINY_MODEL } from "@heddle/training/testing/tiny-language-model";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { distance, TrainingCluster, weightsOf } from "../../test/training-cluster.ts";

// Trainers and parameter servers that die, and invalid input: real processes, kill -9.

let cluster: TrainingCluster;
let servers: ServerProcess[] = [];
let started = 0;
let text = "";

const newServer = () => cluster.startServer(`s${started++}`);

beforeAll(() => {
  cluster = new TrainingCluster();
  text = cluster.writeText();
});
/** Two running ones: those of the last test, and new ones in place of those it killed. */
beforeEach(async () => {
  const running = servers.filter(({ isRunning }) => isRunning);
  const missing = Array.from({ length: 2 - running.length }, newServer);
  servers = [...running, ...(await Promise.all(missing))];
});
afterEach(() => cluster.endTrainers());
afterAll(() => cluster.close());

/** A hundred small rounds, with a stateful optimizer: enough to interrupt it after some of them. */
const config = () => ({
  ...TINY_MODEL,
  data: text,
  total_steps: 500,
  local_steps: 5,
  optimizer: "adamw",
});

const newJob = () => cluster.job("weave", config(), servers);

/** The output and artifacts of a run without faults; they do not depend on the servers. */
let whole: ReturnType<typeof undisturbed> | undefined;

async function undisturbed() {
  const trainer = newJob().start();
  await trainer.succeeded();
  return {
    curve: lossesOf(trainer.metrics()),
    weights: await weightsOf(trainer.artifact("model.gguf")),
  };
}

const lossesOf = (lines: readonly { readonly round?: number; readonly loss?: number }[]) =>
  new Map(lines.map(({ round = 0, loss }) => [round, loss]));

/** Expects that an attempt continued right after `from` rounds, as an uninterrupted run. */
async function expectContinued(
  trainer: ReturnType<ReturnType<typeof newJob>["start"]>,
  from: number,
  whole: Awaited<ReturnType<typeof undisturbed>>,
): Promise<void> {
  await trainer.succeeded();
  const curve = lossesOf(trainer.metrics());
  expect([...curve.keys()][0]).toBe(from + 1);
  expect([...curve]).toEqual([...whole.curve].filter(([round]) => round > from));
  expect(distance(await weightsOf(trainer.artifact("model.gguf")), whole.weights)).toBe(0);
}

const roundOf = (checkpoint: string) => Number(/-r0*(\d+)-/.exec(checkpoint)?.[1]);

// holds: train-resume
test("killed trainer: the next attempt resumes bit by bit from the checkpoint", async () => {
  whole ??= undisturbed();
  await whole;
  const job = newJob();
  const first = job.start();
  await first.reachesRound(20);
  const resumeFrom = await first.checkpoint();
  await first.reachesRound(roundOf(resumeFrom) + 20);
  await first.kill();
  const second = job.start({ attempt: 2, resumeFrom });
  await expectContinued(second, roundOf(resumeFrom), await whole);
  expect(second.output).toContain(`resumed from checkpoint ${resumeFrom}`);
});

// holds: train-resume
test("killed trainer: with fragments in progress the next attempt has the same bits", async () => {
  const streaming = { ...config(), total_steps: 300, fragments: 3, overlap_steps: 4 };
  const run = cluster.job("weave", streaming, servers).start();
  await run.succeeded();
  const job = cluster.job("weave", streaming, servers);
  const first = job.start();
  await first.reachesRound(3);
  const resumeFrom = await first.checkpoint();
  await first.kill();
  const second = job.start({ attempt: 2, resumeFrom });
  await second.succeeded();
  expect(second.metrics()[0]?.round).toBe(roundOf(resumeFrom) + 1);
  const [unbroken, again] = await Promise.all(
    [run, second].map((trainer) => weightsOf(trainer.artifact("model.gguf"))),
  );
  expect(distance(again ?? new Map(), unbroken ?? new Map())).toBe(0);
});

// holds: train-killed-server
test("killed server: the job continues with another on its disk, or without it", async () => {
  whole ??= undisturbed();
  await whole;
  const job = newJob();
  const first = job.start();
  await first.reachesRound(20);
  const resumeFrom = await first.checkpoint();
  await servers[1]?.kill();
  // As the leader does with the rest of an attempt that lost a server.
  first.child.kill("SIGTERM");
  expect(await first.ended()).toBe(143);
  expect(first.output).toContain("left, as it was asked to");
  // The other server has its piece of the checkpoint too.
  const replaced = [servers[0], await newServer()];
  const parameterServers = replaced.map((server) => server?.address ?? "");
  const second = job.start({ attempt: 2, resumeFrom, parameterServers });
  await expectContinued(second, roundOf(resumeFrom), await whole);
});

// holds: train-killed-server
test("lost piece: with one shard of two servers the next attempt finds it or its copy", async () => {
  whole ??= undisturbed();
  await whole;
  const [one, two] = servers.map(({ address }) => address);
  const readyServers = [one ?? "", two ?? ""];
  const job = cluster.job("weave", config(), servers.slice(0, 1), { readyServers });
  const first = job.start();
  await first.reachesRound(20);
  const resumeFrom = await first.checkpoint();
  await first.kill();
  // The other server has a copy; without it the piece on the first one is found.
  const copies = join(servers[1]?.dataDirectory ?? "", "checkpoints", job.id);
  expect(readdirSync(join(copies, resumeFrom))).toEqual(["0.shard"]);
  rmSync(copies, { recursive: true });
  const parameterServers = [two ?? ""];
  const second = job.start({ attempt: 2, resumeFrom, parameterServers });
  await second.reachesRound(roundOf(resumeFrom) + 5);
  expect(second.output).toContain(`resumed from checkpoint ${resumeFrom}`);
  const later = await second.checkpoint();
  await second.kill();
  // Now the server that wrote it is lost with its disk, and only the copy on the first is left.
  await servers[1]?.kill();
  const third = job.start({ attempt: 3, resumeFrom: later });
  await expectContinued(third, roundOf(later), await whole);
});

// holds: train-killed-server
test("refused copy: costs no checkpoint, and the job's log names it", async () => {
  const gone = servers[1]?.address ?? "";
  await servers[1]?.kill();
  const readyServers = [servers[0]?.address ?? "", gone];
  const first = cluster.job("weave", config(), servers.slice(0, 1), { readyServers }).start();
  await first.reachesRound(5);
  const name = await first.checkpoint();
  expect(first.output).toContain(`piece 0 of checkpoint ${name} has no copy: ${gone}: `);
});

test("rank states: the latest are kept; a failed write does not stop the run", async () => {
  const job = cluster.job("weave", config(), servers, {
    tasks: 2,
    keepCheckpoints: 1,
    nodes: ["a", "b"],
  });
  const [leader, other] = job.startAll();
  if (!leader || !other) throw new Error("a job of two tasks has two");
  const folder = leader.orders.checkpointDirectory;
  const ownOf = (rank: number) =>
    readdirSync(folder).filter((name) =>
      readdirSync(join(folder, name)).includes(`rank-${rank}.state`),
    );
  await leader.reachesRound(2);
  for (let taken = 0; taken < 4; taken++) {
    other.child.kill("SIGUSR1");
    await leader.checkpoint();
    await leader.reachesRound((leader.metrics().at(-1)?.round ?? 0) + 5);
  }
  // Three rounds for each checkpoint that is kept; the worker removes what rank 0 has named.
  expect(ownOf(1).length).toBeLessThanOrEqual(3);
  expect(ownOf(0)).toHaveLength(4);
  renameSync(folder, `${folder}-away`);
  writeFileSync(folder, "a file where the folder was");
  for (const { child } of [leader, other]) child.kill("SIGUSR1");
  await Promise.all([leader.succeeded(), other.succeeded()]);
  expect(leader.output).toMatch(
    /the checkpoint after round \d+ failed: rank 0 cannot keep .*is the disk full\?/,
  );
  expect(other.output).toMatch(/^warn: rank 1 cannot keep its own state .*is the disk full\?/m);
});

// holds: train-corrupt
test("corrupt checkpoint: is skipped, and the previous one is used", async () => {
  whole ??= undisturbed();
  await whole;
  const job = newJob();
  const first = job.start();
  await first.reachesRound(10);
  const older = await first.checkpoint();
  await first.reachesRound(roundOf(older) + 5);
  const newer = await first.checkpoint();
  await first.kill();
  const damage = (checkpoint: string) => {
    for (const { dataDirectory } of servers) {
      const folder = join(dataDirectory, "checkpoints", job.id, checkpoint);
      for (const name of readdirSync(folder)) {
        const piece = readFileSync(join(folder, name));
        piece.writeUInt8(piece.readUInt8(2_000) ^ 1, 2_000);
        writeFileSync(join(folder, name), piece);
      }
    }
  };
  damage(newer);
  const second = job.start({ attempt: 2, resumeFrom: newer });
  await expectContinued(second, roundOf(older), await whole);
  expect(second.output).toMatch(new RegExp(`passed over: ${newer}: .*corrupt`));
  damage(older);
  const third = job.start({ attempt: 3, resumeFrom: newer });
  expect(await third.ended()).toBe(66);
  expect(third.output).toMatch(/no checkpoint of job .* can be used: .*corrupt.*; submit .* again/);
});

// holds: train-fencing
test("stale attempt: is fenced and counted, and adds nothing", async () => {
  whole ??= undisturbed();
  await whole;
  const job = newJob();
  const first = job.start();
  await first.reachesRound(20);
  const resumeFrom = await first.checkpoint();
  // It is considered dead, and continues during the next attempt.
  first.child.kill("SIGSTOP");
  const second = job.start({ attempt: 2, resumeFrom });
  await second.reachesRound(roundOf(resumeFrom) + 1);
  // The next attempt is stopped meanwhile, so that its shards report their refusals.
  second.child.kill("SIGSTOP");
  first.child.kill("SIGCONT");
  expect(await first.ended()).toBe(70);
  expect(first.output).toMatch(/attempt 1 of job .* is stale: attempt 2 has taken it over/);
  // It ends with the first refusal, from either server.
  const refused = (await shardStatuses(job.access({ attempt: 2 }))).map(
    ({ refusedStale }) => refusedStale,
  );
  expect(Math.max(...refused)).toBeGreaterThan(0);
  second.child.kill("SIGCONT");
  await expectContinued(second, roundOf(resumeFrom), await whole);
});

// holds: train-resume
test("ppo resume: environments, random numbers and moments continue bit by bit", async () => {
  const normalized = { normalize_observations: true, normalize_rewards: true };
  const ppo = { total_timesteps: 10_240, num_steps: 64, seed: 3, ...normalized };
  const unbroken = cluster.job("ppo", ppo, servers).start();
  await unbroken.succeeded();
  const job = cluster.job("ppo", ppo, servers);
  const first = job.start();
  await first.reachesRound(10);
  const resumeFrom = await first.checkpoint();
  await first.kill();
  const second = job.start({ attempt: 2, resumeFrom });
  await second.succeeded();
  const from = roundOf(resumeFrom);
  expect(second.metrics()).toEqual(unbroken.metrics().filter(({ round = 0 }) => round > from));
  expect(second.metrics().length).toBeGreaterThan(0);
  const policy = (trainer: typeof first) => readFileSync(trainer.artifact("policy.onnx"));
  expect(policy(second).equals(policy(unbroken))).toBe(true);
});

// holds: train-resume
test("two tasks: one is killed, the next attempt resumes from their checkpoint", async () => {
  const sgd = { ...config(), optimizer: "sgd", local_steps: 1, total_steps: 150 };
  const tasks = { tasks: 2, nodes: ["a", "b"] };
  const run = cluster.job("weave", sgd, servers, tasks).startAll();
  for (const trainer of run) await trainer.succeeded();
  const unbroken = await weightsOf(run[0]?.artifact("model.gguf") ?? "");
  const { job, first } = await withoutRank1(() => cluster.job("weave", sgd, servers, tasks));
  // Rank 0 waits for a part that never arrives, and takes the checkpoint nevertheless.
  const resumeFrom = (await first?.checkpoint()) ?? "";
  first?.child.kill("SIGTERM");
  expect(await first?.ended()).toBe(143);
  const [again, other] = job.startAll({ attempt: 2, resumeFrom });
  await again?.succeeded();
  await other?.succeeded();
  expect(again?.metrics()[0]?.round).toBe(roundOf(resumeFrom) + 1);
  expect(distance(await weightsOf(again?.artifact("model.gguf") ?? ""), unbroken)).toBe(0);
});

/**
 * A job whose rank 1 was killed between two pushes. A kill during a push may leave the shards at
 * different versions, without a checkpoint; then another job is started.
 */
async function withoutRank1(newJob: () => ReturnType<typeof cluster.job>) {
  for (;;) {
    const job = newJob();
    const [first, killed] = job.startAll();
    await first?.reachesRound(30);
    await killed?.kill();
    await delay(1_000);
    const statuses = await shardStatuses(job.access());
    if (new Set(statuses.map(({ version }) => version)).size === 1) return { job, first };
    await cluster.endTrainers();
  }
}

const LINE = [
  { name: "dense.0.weight", shape: [1, 1], type: "f32" },
  { name: "dense.0.bias", shape: [1], type: "f32" },
] as const;

/** A job of two tasks on three numbers; a test plays the second task. */
function lineJob(more: object) {
  const path = join(cluster.folder, "line.csv");
  writeFileSync(path, "x,y\n1,2\n2,4\n3,6\n");
  const line = { program: "regression", data: path, hidden: [], optimizer: "sgd", total_steps: 40 };
  const options = { tasks: 2, nodes: ["a", "b"] };
  return cluster.job("weave", { ...line, ...more }, servers.slice(0, 1), options);
}

const still = () => ({
  "dense.0.weight": new Float32Array(1),
  "dense.0.bias": new Float32Array(1),
});
const terms = { weight: 16, learningRate: 1 };

// holds: train-ssp
test("ssp: a trainer never exceeds its bound ahead of the slowest", async () => {
  const staleness = 2;
  const job = lineJob({ consistency: "ssp", staleness });
  const trainer = job.start();
  const consistency = { kind: "ssp", staleness } as const;
  const slow = await job.join(1, { parameters: LINE, consistency });
  for (let pushed = 0; pushed < 4; pushed++) {
    // It advances to the bound, and waits there for the other.
    await trainer.reachesRound(pushed + staleness);
    await delay(150);
    expect(trainer.metrics().at(-1)?.round).toBe(pushed + staleness);
    await slow.push(still(), terms);
    await slow.pull(still());
  }
});

// holds: train-invalid-input
test("invalid input: wrong shape, NaN and wrong tokens are refused harmlessly", async () => {
  const run = lineJob({}).startAll();
  for (const trainer of run) await trainer.succeeded();
  const model = (trainer = run[0]) => readFileSync(trainer?.artifact("model.onnx") ?? "");

  const job = lineJob({});
  const first = job.start();
  const rogue = await job.join(1, { parameters: LINE });
  const poison = { ...still(), "dense.0.bias": Float32Array.of(Number.NaN) };
  await expect(rogue.push(poison, terms)).rejects.toMatchObject({ code: "invalid_value" });
  await rogue.close();
  const wide = [{ name: "dense.0.weight", shape: [9, 1], type: "f32" }, LINE[1]] as const;
  const misshapen = await job.join(1, { parameters: wide });
  const part = { ...still(), "dense.0.weight": new Float32Array(9) };
  await expect(misshapen.push(part, terms)).rejects.toMatchObject({ code: "invalid_value" });
  await misshapen.close();
  const stale = job.access({ attempt: 0, parameters: LINE });
  await expect(shardStatuses(stale)).rejects.toMatchObject({ code: "precondition_failed" });
  const [status] = await shardStatuses(job.access());
  expect(status).toMatchObject({ refusedInvalid: 2, refusedStale: 1, version: 0 });
  const second = job.start({ rank: 1 });
  await first.succeeded();
  await second.succeeded();
  expect(model(first).equals(model())).toBe(true);
});
