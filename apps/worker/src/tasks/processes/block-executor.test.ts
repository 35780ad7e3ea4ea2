// holds: plugins-block-steps, block-kit

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import { afterAll, beforeAll, expect, it } from "vitest";
import { blockCases, killSteps } from "../../../test/block-kit.ts";
import { type LeaderSession, TestLeader, taskId } from "../../../test/test-leader.ts";

// Steps of a plugin's block as tasks of a worker. The config of a step says what it does.

const PLUGIN = String.raw`
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { refusal, z } from "heddle/plugin-kit";
const out = () => process.env.HEDDLE_ARTIFACT_DIR + "/out.txt";
const ACTS = {
  async *yields({ value }) { yield value; },
  async *nan() { yield { metrics: { loss: NaN } }; },
  async *circle() { const a = {}; a.a = a; yield { outputs: { out: a } }; },
  async *getter() { yield { get step() { throw new Error("no step"); } }; },
  async *bigint() { yield { checkpoint: { at: 1, more: 1n } }; },
  async *large() { yield { checkpoint: { at: 1, text: "x".repeat(17 * 2 ** 20) } }; },
  async *outputs() { yield { outputs: { out: new Uint8Array(65 * 2 ** 20) } }; },
  async *nothing() {},
  async *throws() { throw new TypeError("oh no\nsecond line"); },
  async *rejects() { throw null; },
  async *refuses() { throw refusal("invalid_value", "there is no such text", "text"); },
  async *exits() { process.exit(0); },
  async *late() { setTimeout(() => { throw new Error("later"); }, 10); await delay(60_000); },
  async *forever() { await new Promise(() => {}); },
  async *memory() { const all = []; for (;;) all.push("y".repeat(2 ** 20) + all.length); },
  array: () => [1, 2],
  async *reads() { readFileSync("/etc/passwd"); },
  async *spawns() { spawnSync("true"); },
  async *hangs() { yield { message: "hangs" }; for (;;); },
  async *leaves(_, { signal }) {
    yield { message: "leaves" };
    await delay(60_000, undefined, { signal });
  },
  async *counts({ stopAt }, { resumeFrom }) {
    console.log("from " + (resumeFrom?.at ?? 0));
    yield { outputs: { out: "first\n" } };
    for (let at = resumeFrom?.at ?? 0; at < 5; at++) {
      if (at === stopAt && resumeFrom === undefined) { yield { message: "stops" }; await delay(60_000); }
      yield { metrics: { at }, checkpoint: { at: at + 1 } };
    }
    if (resumeFrom) return;
    yield { outputs: { out: { done: true } } };
  },
  async *early({}, { resumeFrom }) {
    if (resumeFrom) return;
    yield { outputs: { out: "early" }, checkpoint: { at: 1 } };
    throw new Error("after it");
  },
  async *files() { await writeFile(out(), "a file"); yield { step: 7, progress: 1 }; },
  async *many() { for (let at = 0; at < 20_000; at++) yield { metrics: { at } }; yield { outputs: { out: "" } }; },
  async *often() { for (let at = 0; at < 12; at++) yield { checkpoint: { at } }; yield { outputs: { out: "" } }; },
};
export default { name: "acts", version: "1", apiVersion: 1, capabilities: ["blocks"], setup({ blocks }) {
  blocks.add({ name: "act", version: 3, summary: "Acts.", config: z.looseObject({ act: z.string() }),
    outputs: { out: { type: "file", artifact: "out.txt" } },
    resume: z.looseObject({ at: z.number() }),
    run: (step) => ACTS[step.config.act](step.config, step) });
  blocks.add({ name: "stateless", version: 1, summary: "Has no resume.", config: z.object({}),
    async *run() { yield { checkpoint: 1 }; } });
} };`;

const folder = mkdtempSync(join(tmpdir(), "heddle-blocks-"));
const file = join(folder, "acts.mjs");
const leader = new TestLeader();
let session: LeaderSession;
beforeAll(async () => {
  writeFileSync(file, PLUGIN);
  await leader.listen();
  await leader.startWorker({ plugins: [file], isIsolationOptional: true });
  session = leader.open();
});
afterAll(async () => {
  await leader.close();
  rmSync(folder, { recursive: true });
});

blockCases({
  id: "acts/act@3",
  plugin: file,
  artifacts: ["out.txt"],
  brief: { act: "files" },
  long: { act: "leaves" },
  wrong: [{}, "'act'"],
  resumes: { act: "counts", stopAt: 3 },
});

function step(config: object, spec: Partial<TaskSpec> = {}): Partial<TaskSpec> {
  const algorithm = "acts/act@3";
  return { executor: "block", algorithm, config: JSON.stringify(config), ...spec };
}

let rank = 0;
async function exitOf(spec: Partial<TaskSpec>) {
  const task = taskId(rank++);
  await session.lease(spec, task);
  session.send({ start: { task, peers: [] } });
  return (await session.reaches("exited", task)).exit;
}

it("blocks: a worker offers those of its plugins beside its algorithms", () => {
  expect(leader.register?.executors).toContain("block");
  expect(leader.register?.algorithms).toEqual(
    expect.arrayContaining(["acts/act@3", "acts/stateless@1"]),
  );
});

const NOT_A_CHANGE = "what it yielded is not as the block acts/act@3 says";
/** What a step does wrong: the reason of its end, and a part of its message. */
const FAULTS: readonly (readonly [object, string, string])[] = [
  [{ act: "yields", value: 7 }, "Unsatisfiable", `${NOT_A_CHANGE}: Invalid input: expected object`],
  [{ act: "yields", value: null }, "Unsatisfiable", NOT_A_CHANGE],
  [{ act: "yields", value: { steps: 1 } }, "Unsatisfiable", "steps"],
  [{ act: "yields", value: { step: -1 } }, "Unsatisfiable", `${NOT_A_CHANGE}: step: `],
  [{ act: "yields", value: { progress: 2 } }, "Unsatisfiable", "progress: "],
  [{ act: "yields", value: { message: "m".repeat(2_000) } }, "Unsatisfiable", "message: "],
  [
    { act: "yields", value: { metrics: { checkpoint: 1 } } },
    "Unsatisfiable",
    "metrics.checkpoint: ",
  ],
  [
    { act: "yields", value: { outputs: { other: "x" } } },
    "Unsatisfiable",
    "no output other; it has out",
  ],
  [
    { act: "yields", value: { checkpoint: { on: 1 } } },
    "Unsatisfiable",
    "its checkpoint is not as",
  ],
  [{ act: "nan" }, "Unsatisfiable", "metrics.loss: "],
  [{ act: "circle" }, "Unsatisfiable", "its output out has no JSON"],
  [{ act: "getter" }, "Unsatisfiable", "no step"],
  [{ act: "bigint" }, "Unsatisfiable", "its checkpoint has no JSON"],
  [{ act: "large" }, "Unsatisfiable", "its checkpoint has more than 16777216 bytes"],
  [{ act: "outputs" }, "Unsatisfiable", "its outputs have more than 67108864 bytes"],
  [{ act: "nothing" }, "Unsatisfiable", "left no output out: yield { outputs: { out: ... } }"],
  [{ act: "array" }, "Unsatisfiable", "gives no async iterable"],
  [{ act: "refuses" }, "Unsatisfiable", "refuses its step: there is no such text"],
  [{ act: "throws" }, "ExitCode", "the block acts/act@3 failed: oh no"],
  [{ act: "rejects" }, "ExitCode", "the block acts/act@3 failed: null"],
  [
    { act: "exits" },
    "Unsatisfiable",
    "the process ended with exit code 0 before its task was done",
  ],
  [{ act: "late" }, "Unsatisfiable", "later"],
  [{ act: "forever" }, "Unsatisfiable", "nor wait for what never comes"],
  [{ act: "memory" }, "OutOfMemory", "memory"],
  [{ act: "reads" }, "ExitCode", "Access to this API has been restricted"],
  [{ act: "spawns" }, "ExitCode", "Access to this API has been restricted"],
  [{}, "Unsatisfiable", "'act'"],
];

it.for(FAULTS)(
  "a step that does wrong fails with the reason: %o",
  async ([config, reason, words]) => {
    const exit = await exitOf(step(config, { memoryBytes: 512e6 }));
    expect(exit?.message).toContain(words);
    expect(exit?.reason).toBe(reason);
  },
);

it("blocks: a checkpoint without `resume`, and an unknown block, are refused", async () => {
  const stateless = await exitOf(step({}, { algorithm: "acts/stateless@1" }));
  expect(stateless?.message).toContain("yields a checkpoint and has no `resume`");
  const older = await exitOf(step({}, { algorithm: "acts/act@2" }));
  expect(older).toMatchObject({ reason: "LaunchFailed" });
  expect(older?.message).toContain("no block acts/act@2, but acts/act@3, acts/stateless@1");
});

it("blocks: a cancelled step ends by its signal, one that hangs is killed", async () => {
  for (const act of ["leaves", "hangs"]) {
    const task = taskId(rank++);
    await session.start(step({ act }), task);
    const says = () => session.progressLines.some((line) => line.includes(act));
    await until("the step runs", says, 60_000);
    session.send({ stop: { task, checkpoint: false, graceMs: 2_000, why: "cancelled" } });
    const { exit } = await session.reaches("exited", task);
    const how = act === "leaves" ? { exitCode: 143 } : { signal: "SIGKILL" };
    expect(exit).toMatchObject({ asked: true, ...how });
  }
});

it("blocks: after a kill the next attempt continues at the last checkpoint", async () => {
  const jobId = "resumes";
  const spec = step({ act: "counts", stopAt: 3 });
  const first = { ...taskId(rank++), jobId };
  await session.start(spec, first);
  await until(
    "it stops",
    () => session.progressLines.some((line) => line.includes("stops")),
    60_000,
  );
  killSteps(leader);
  const killed = await session.reaches("exited", first);
  expect(killed.exit).toMatchObject({ reason: "ExitCode" });
  const resumeFrom = killed.progress?.checkpoint ?? "";
  expect(resumeFrom).toBe("block-1-3");
  const second = { ...first, attempt: 2 };
  await session.lease({ ...spec, resumeFrom }, second);
  session.send({ start: { task: second, peers: [] } });
  const { exit } = await session.reaches("exited", second);
  expect(exit).toMatchObject({ exitCode: 0, reason: "" });
  // The step that began from its start would have yielded another text.
  const [artifact] = exit?.artifacts ?? [];
  expect(artifact).toMatchObject({ name: "out.txt", bytes: 6 });
  await until("its log", () => leader.log(second.rank, "stdout", 2) === "from 3\n", 30_000);
});

it("blocks: outputs from before a checkpoint are those of the next attempt too", async () => {
  const first = { ...taskId(rank++), jobId: "early" };
  await session.start(step({ act: "early" }), first);
  const failed = await session.reaches("exited", first);
  expect(failed.exit?.message).toContain("after it");
  const resumeFrom = failed.progress?.checkpoint ?? "";
  const second = { ...first, attempt: 2 };
  await session.lease(step({ act: "early" }, { resumeFrom }), second);
  session.send({ start: { task: second, peers: [] } });
  const { exit } = await session.reaches("exited", second);
  expect(exit?.artifacts).toMatchObject([{ name: "out.txt", bytes: 5 }]);
});

it("blocks: a damaged checkpoint is replaced by the one before it, if there is one", async () => {
  const jobId = "damaged";
  const first = { ...taskId(rank++), jobId };
  await session.start(step({ act: "counts" }, { keepCheckpoints: 2 }), first);
  await session.reaches("exited", first);
  const checkpoints = join(leader.folder, "worker", "checkpoints", jobId);
  await until("older ones are gone", () => names().length === 2, 30_000);
  function names(): string[] {
    return readdirSync(checkpoints).filter((name) => name.startsWith("block-"));
  }
  const damage = (name: string) => writeFileSync(join(checkpoints, name), "{}");
  damage("block-1-5");
  const second = { ...first, attempt: 2 };
  const spec = step({ act: "counts" }, { resumeFrom: "block-1-5", keepCheckpoints: 2 });
  await session.start(spec, second);
  expect((await session.reaches("exited", second)).exit).toMatchObject({ exitCode: 0 });
  await until("its log", () => leader.log(second.rank, "stdout", 2) === "from 4\n", 30_000);
  for (const name of names()) damage(name);
  const third = { ...first, attempt: 3 };
  await session.lease(spec, third);
  session.send({ start: { task: third, peers: [] } });
  expect((await session.reaches("exited", third)).exit?.reason).toBe("CheckpointCorrupt");
});

it("blocks: large outputs are files, and many updates few lines and checkpoints", async () => {
  const files = await exitOf(step({ act: "files" }));
  expect(files?.artifacts).toMatchObject([{ name: "out.txt", bytes: 6 }]);
  const many = { ...taskId(rank++), jobId: "many" };
  await session.start(step({ act: "many" }), many);
  const { exit, progress } = await session.reaches("exited", many);
  expect(exit).toMatchObject({ exitCode: 0 });
  expect(JSON.parse(progress?.line ?? "{}")).toMatchObject({ step: 20_001 });
  const folder = join(leader.folder, "worker");
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  const written = names.filter((name) => /many.*progress.jsonl/.test(name));
  expect(written.length).toBeGreaterThan(0);
  for (const name of written) {
    expect(readFileSync(join(folder, name), "utf8").split("\n").length).toBeLessThan(10_000);
  }
  const startedMs = performance.now();
  expect(await exitOf(step({ act: "often" }))).toMatchObject({ exitCode: 0 });
  expect(performance.now() - startedMs).toBeGreaterThan(1_000);
});
