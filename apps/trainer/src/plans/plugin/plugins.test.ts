// holds: train-plugins

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onnxBackend } from "@heddle/backends/onnx-backend";
import { AppError } from "@heddle/base/errors";
import { seededRandom } from "@heddle/base/random";
import { programOf } from "@heddle/base/testing/programs";
import { ownConfigCheck } from "@heddle/contracts/plugin-config";
import { EXIT_FAILED, EXIT_UNUSABLE } from "@heddle/contracts/trainer/exit-codes";
import { parsePluginTraining, parseTrainingConfig } from "@heddle/contracts/training";
import { createLogger } from "@heddle/observability/logger";
import type { Environment } from "@heddle/training/environments/environment";
import { initialParameters } from "@heddle/training/initialize";
import type { ParameterClient, Parameters } from "@heddle/training/parameter-client";
import type { PluginPlan } from "@heddle/training/plugins/plugin";
import type { RoundReport } from "@heddle/training/training-loop";
import { afterEach, beforeEach, expect, it, test } from "vitest";
import type { Lineage } from "../../data/lineage.ts";
import { ppoPlan } from "../ppo/ppo-plan.ts";
import type { TrainingPlan } from "../training-plan.ts";
import { algorithmSchemas } from "./algorithm-schemas.ts";
import { loadPlugins } from "./load-plugins.ts";
import { pluginPlan } from "./plugin-plan.ts";

const example = (name: string) =>
  fileURLToPath(new URL(`../../../../../examples/plugins/${name}.mjs`, import.meta.url));
const EXAMPLES = [example("grid-world"), example("evolution-strategies")];
const backend = onnxBackend({ device: "cpu", threads: 1 });
const SOLE = { rank: 0, tasks: 1 };
const silent = createLogger({ service: "trainer", level: "silent" });

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-plugins-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Plain gradient steps in this process, in place of parameter servers. */
function stepper(initial: Parameters): ParameterClient {
  const held = structuredClone(initial);
  let version = 0;
  return {
    pull: (into) => {
      for (const [name, data] of Object.entries(held)) into[name]?.set(data);
      return Promise.resolve(version);
    },
    push: (part, { learningRate }) => {
      version++;
      for (const [name, data] of Object.entries(held)) {
        for (const i of data.keys()) data[i]! -= learningRate * (part[name]?.[i] ?? 0);
      }
      return Promise.resolve();
    },
  };
}

async function runPlan(plan: TrainingPlan): Promise<{ reports: RoundReport[]; end: Parameters }> {
  const parameters = initialParameters(plan.parameters, seededRandom(1));
  const reports: RoundReport[] = [];
  await plan.run({
    client: stepper(parameters),
    parameters,
    done: 0,
    state: undefined,
    signal: new AbortController().signal,
    report: (round) => {
      reports.push(round);
      return Promise.resolve(round.reached ? "stop" : "continue");
    },
  });
  return { reports, end: parameters };
}

test("example environment: ppo trains on it and learns", async () => {
  const plugins = await loadPlugins(
    EXAMPLES.map((from) => ({ from })),
    silent,
  );
  const config = parseTrainingConfig("ppo", {
    environment: "GridWorld-v0",
    total_timesteps: 40_000,
    target_return: 0.5,
    learning_rate: 1e-3,
  });
  if (config.algorithm !== "ppo") throw new Error("a ppo config was parsed as another");
  const { reports } = await runPlan(ppoPlan(config, plugins.environments, backend, SOLE));
  expect(reports.at(-1)?.reached, `the return is ${reports.at(-1)?.reward}`).toBe(true);
});

test("example algorithm: learns CartPole, stops at its target, leaves a policy", async () => {
  const plugins = await loadPlugins(
    EXAMPLES.map((from) => ({ from })),
    silent,
  );
  const config = parsePluginTraining("evolution-strategies", {
    seed: 3,
    environment: "CartPole-v1",
    target_return: 100,
    learning_rate: 0.5,
  });
  const plan = pluginPlan(config, plugins, backend, SOLE);
  expect(plan.rounds).toBe(100);
  const { reports, end } = await runPlan(plan);
  expect(reports[0]?.reward).toBeLessThan(80);
  expect(reports.at(-1)?.reward).toBeGreaterThanOrEqual(100);
  await plan.writeArtifacts(folder, end, {} as Lineage);
  const left = spawnSync("ls", [folder], { encoding: "utf8" });
  expect(left.stdout.trim()).toBe("policy.onnx");
});

it.each([
  [{ generations: 0 }, /config\.generations/],
  [{ generatoins: 5 }, /generatoins/],
  [{ deviation: "big" }, /config\.deviation/],
  [{ environment: "Nowhere-v0" }, /no environment "Nowhere-v0": there are .*GridWorld-v0/],
])("schema: the plugin's own refuses %o by name", async (config, message) => {
  const plugins = await loadPlugins(
    EXAMPLES.map((from) => ({ from })),
    silent,
  );
  const parsed = parsePluginTraining("evolution-strategies", config);
  expect(() => pluginPlan(parsed, plugins, backend, SOLE)).toThrow(message);
});

test("common fields: are checked for a plugin's algorithm too, and are not its own", () => {
  const parsed = parsePluginTraining("mine", { seed: 7, consistency: "ssp", staleness: 2, x: 1 });
  expect(parsed).toMatchObject({ seed: 7, consistency: "ssp", own: { x: 1 } });
  expect(() => parsePluginTraining("mine", { seed: -1 })).toThrow(/config\.seed/);
});

test("algorithm: an unknown one is refused with the list of known ones", async () => {
  const plugins = await loadPlugins(
    EXAMPLES.map((from) => ({ from })),
    silent,
  );
  const parsed = parsePluginTraining("magic", {});
  expect(() => pluginPlan(parsed, plugins, backend, SOLE)).toThrow(
    /no algorithm "magic": there are ppo, weave, evolution-strategies/,
  );
});

const good = `name: "a", version: "1", apiVersion: 1`;
it.each([
  ["export const nothing = 1;", /default export must be an object/],
  [`export default { name: "a b", version: "1", apiVersion: 1 };`, /its name is a b/],
  [`export default { name: "a", version: "1", apiVersion: 2 };`, /apiVersion is 2.* has 1/],
  [`export default { ${good} };`, /its `setup` is not a function/],
  [`export default { ${good}, setup() { throw new Error("no luck"); } };`, /no luck/],
  [
    `export default { ${good}, setup: (api) => api.environments.add("CartPole-v1", () => 1) };`,
    /an environment CartPole-v1 already/,
  ],
  [
    `export default { ${good}, setup: (api) => api.algorithms.add("ppo", {}) };`,
    /an algorithm ppo already/,
  ],
  [
    `export default { ${good}, setup: (api) => api.algorithms.add("x", { plan() {} }) };`,
    /config of the algorithm x must be a JSON Schema of type object/,
  ],
  ["this is no module", /cannot be used: /],
])("plugin: faulty one %# is refused with its file and the reason", async (text, reason) => {
  const file = join(folder, "faulty.mjs");
  writeFileSync(file, text);
  await expect(loadPlugins([{ from: file }], silent)).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(reason),
  });
  await expect(loadPlugins([{ from: file }], silent)).rejects.toThrow(file);
});

const ADAM = { kind: "adam", beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0 };
const init = { kind: "zeros" };

/** The plan that a plugin returns: a valid one with these changes. */
function planOf(changes: object, give = (plan: object): unknown => plan): TrainingPlan {
  const plan = {
    parameters: [{ name: "w", shape: [2], init }],
    servers: { optimizer: ADAM, learningRate: 1 },
    rounds: 3,
    pushesPerRound: 1,
    stepAfter: (round: number) => round,
    run: () => Promise.resolve(),
    ...changes,
  };
  const algorithm = { config: { type: "object" }, plan: () => give(plan) as PluginPlan };
  const plugins = { environments: new Map(), algorithms: new Map([["mine", algorithm]]) };
  return pluginPlan(parsePluginTraining("mine", {}), plugins, backend, SOLE);
}

it.each([
  [{ parameters: [{ name: "w", shape: [2] }] }, /has `init` undefined of the parameter "w": give/],
  [
    { parameters: [{ name: "w", shape: [2], init: { kind: "normal" } }] },
    /`init` .*"normal".* "w"/,
  ],
  [
    { parameters: [{ name: "w", shape: [2.5], init }] },
    /has `shape` \[2\.5\] of the parameter "w"/,
  ],
  [{ parameters: [{ shape: [2], init }] }, /has no `name` in parameters\[0\]/],
  [{ parameters: ["w"] }, /has no `name` in parameters\[0\]/],
  [{ parameters: [1, 2].map(() => ({ name: "w", shape: [2], init })) }, /two parameters .* "w"/],
  [{ parameters: undefined }, /has no `parameters`/],
  [{ servers: undefined }, /has no `servers`/],
  [{ servers: { optimizer: { kind: "lion" }, learningRate: 1 } }, /optimizer.* one of sgd, adam/],
  [{ servers: { optimizer: ADAM } }, /`servers\.learningRate` undefined: give a number above 0/],
  [
    { servers: { optimizer: ADAM, learningRate: 1, maxGradientNorm: -1 } },
    /`servers\.maxGradientNorm` -1/,
  ],
  [
    { servers: { optimizer: { kind: "adam" }, learningRate: 1 } },
    /`servers\.optimizer\.beta1` undefined: give a number from 0 to below 1/,
  ],
  [
    { servers: { optimizer: { ...ADAM, epsilon: 0 }, learningRate: 1 } },
    /`servers\.optimizer\.epsilon` 0: give a number above 0/,
  ],
  [
    { servers: { optimizer: { kind: "sgd", momentum: "x" }, learningRate: 1 } },
    /`servers\.optimizer\.momentum` "x"/,
  ],
  [
    { fragments: 2, servers: { optimizer: ADAM, learningRate: 1, maxGradientNorm: 1 } },
    /has `fragments` and `servers\.maxGradientNorm`: .* leave one of them out/,
  ],
  [{ rounds: 0 }, /has `rounds` 0: give a whole number above 0/],
  [{ pushesPerRound: Number.NaN }, /has `pushesPerRound` NaN/],
  [{ fragments: 33 }, /has `fragments` 33: leave it out, or give 1 to 32/],
  [{ run: undefined }, /has no function `run`/],
  [{ artifacts: {} }, /has `artifacts` that is not a function/],
])("plan: one with %o is refused, and the faulty part is named", (changes, expected) => {
  expect(() => planOf(changes)).toThrow(expected);
  expect(() => planOf(changes)).toThrow("the plan of the plugin's algorithm mine");
});

it.each([
  [(plan: object) => Promise.resolve(plan), /is a promise: give the plan itself/],
  [() => undefined, /is not an object/],
])("plan: what is not a plan is refused, %#", (give, expected) => {
  expect(() => planOf({}, give)).toThrow(expected);
});

test("run: one that does nothing fails, and its errors are attributed to it", async () => {
  await expect(runPlan(planOf({}))).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(/mine ended its `run` without one of the 3 rounds .*`report`/),
  });
  const broken = () => Promise.reject(new TypeError("no such wave\nat sea"));
  await expect(runPlan(planOf({ run: broken }))).rejects.toMatchObject({
    code: "invalid_value",
    message: "the plugin's algorithm mine failed: TypeError: no such wave",
  });
});

test.each([
  [() => Number.NaN, "the plugin's algorithm mine gives NaN as its `stepAfter` 3 rounds"],
  [() => Promise.resolve(3), /gives \[object Promise\] as its `stepAfter`/],
  [
    () => {
      throw new Error("no steps");
    },
    "the plugin's algorithm mine failed: Error: no steps",
  ],
])("steps: those that a plugin reports wrongly are its fault: %s", (stepAfter, expected) => {
  const plan = planOf({ stepAfter });
  expect(() => plan.stepAfter(3)).toThrow(expected);
});

const REPORT = { round: 1, step: 1, loss: 0, metrics: {}, state: {} };
it.each([
  [undefined, /reports undefined: give \{round, step, loss, metrics, state\}/],
  [{ ...REPORT, round: 4 }, /`round` 4: give 1 to its plan's `rounds`, 3/],
  [{ ...REPORT, round: undefined }, /`round` undefined/],
  [{ ...REPORT, step: "one" }, /`step` "one"/],
  [{ ...REPORT, loss: null }, /without a number as its `loss`/],
  [{ ...REPORT, reward: "good" }, /`reward` "good"/],
  [{ ...REPORT, metrics: null }, /`metrics`/],
  [{ ...REPORT, state: { a: [1] } }, /object of Float32Arrays as its `state`/],
])("report: a round of %o is refused", async (round, expected) => {
  const run: PluginPlan["run"] = async (loop) => void (await loop.report(round as RoundReport));
  await expect(runPlan(planOf({ run }))).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(expected),
  });
});

it.each([
  ["a promise", () => Promise.resolve({}), /gives a promise as its `artifacts`/],
  ["a text", () => ({ "a.txt": "text" }), /gives no Uint8Array as its artifact "a\.txt"/],
  ["a name that leads out", () => ({ "../a": new Uint8Array(1) }), /name "\.\.\/a": no plain/],
  ["our own file", () => ({ "lineage.json": new Uint8Array(1) }), /the trainer writes itself/],
])("artifacts: those that are %s are refused", async (_, artifacts, expected) => {
  const leaving = planOf({ artifacts }).writeArtifacts(folder, {}, {} as Lineage);
  await expect(leaving).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(expected),
  });
});

it.each([
  ["ends the process", "process.exit(0);", /ended with exit code 0 before its task was done: a/],
  ["waits forever", "await new Promise(() => {});", /exit code 13 .* wait for what never comes/],
  [
    "rejects where no caller waits",
    `Promise.reject(new Error("lost at sea")); await new Promise((go) => setTimeout(go, 9_999));`,
    /\(invalid_value\): the plugin .*rude\.mjs failed: Error: lost at sea$/,
  ],
])("trainer: its last line says that a plugin %s", (_, text, expected) => {
  const file = join(folder, "rude.mjs");
  writeFileSync(file, `${text}\nexport default { ${good}, setup() {} };`);
  const main = programOf("trainer");
  const input = JSON.stringify({ plugins: [{ from: file }], algorithm: "mine", config: {} });
  const { status, stderr } = spawnSync(process.execPath, [main], { input, encoding: "utf8" });
  expect(stderr.trim().split("\n").at(-1)).toMatch(expected);
  expect(status).toBe(EXIT_UNUSABLE);
});

test("trainer: without plugins an early end may be retried", () => {
  const main = programOf("trainer");
  const fault = `process.on("newListener", (name) => name === "exit" && queueMicrotask(() => process.exit(0)));`;
  const args = ["--import", `data:text/javascript,${fault}`, main];
  const { status, stderr } = spawnSync(process.execPath, args, { input: "{}", encoding: "utf8" });
  expect(stderr.trim().split("\n").at(-1)).toBe(
    "the task failed (server_error): the process ended with exit code 0 before its task was done",
  );
  expect(status).toBe(EXIT_FAILED);
});

it.each([
  ["a lost server", new AppError("shard_unavailable", "s0 is unreachable")],
  ["a lack of memory", new RangeError("Array buffer allocation failed")],
])("error: %s is not the plugin's fault, however deep it is nested", async (_, error) => {
  const run = () => Promise.reject(new Error("pull failed", { cause: error }));
  await expect(runPlan(planOf({ run }))).rejects.toMatchObject({
    message: "pull failed",
    cause: error,
  });
});

test("error: a system error has the system's message and may be retried", async () => {
  const cause = Object.assign(new Error("ECONNRESET: reset"), { errno: -104 });
  const thrown = new Error("pull failed\nand more", { cause });
  const run = () => Promise.reject(thrown);
  await expect(runPlan(planOf({ run }))).rejects.toMatchObject({
    code: "unavailable",
    message: "the plugin's algorithm mine failed: Error: pull failed: ECONNRESET: reset",
    cause: thrown,
  });
});

it.each([
  [() => 1, /is not an object/],
  [() => ({ ...SEA, observations: 0 }), /has `observations` 0: a whole number above 0/],
  [() => ({ ...SEA, step: undefined }), /has no `step`/],
  [() => ({ ...SEA, step: () => undefined }), /gives no number as the `reward` of a step/],
  [
    () => {
      throw new Error("no water");
    },
    /failed: Error: no water/,
  ],
])("environment: a malformed one, %#, is named", async (make, expected) => {
  const environments = new Map([["Sea-v0", make as unknown as () => Environment]]);
  const config = parseTrainingConfig("ppo", { environment: "Sea-v0", total_timesteps: 512 });
  if (config.algorithm !== "ppo") throw new Error("a ppo config was parsed as another");
  const work = async () => runPlan(ppoPlan(config, environments, backend, SOLE));
  await expect(work()).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(expected),
  });
  await expect(work()).rejects.toThrow("the plugin's environment Sea-v0");
});

const SEA = {
  name: "Sea-v0",
  observations: 1,
  actions: 2,
  continuous: false,
  maxSteps: 9,
  reset: () => undefined,
  step: () => ({ reward: 1, terminated: false }),
};

test("schemas: are reported within the size bound; the example's fit", async () => {
  const { algorithms } = await loadPlugins(
    EXAMPLES.map((from) => ({ from })),
    silent,
  );
  const [example] = algorithms.values();
  if (!example) throw new Error("the example has an algorithm");
  const sized = (bytes: number) => ({
    ...example,
    config: { type: "object", description: "x".repeat(bytes) },
  });
  const { schemas, unchecked } = algorithmSchemas(
    new Map([
      ...[1, 2, 3, 4].map((i) => [`a${i}`, sized(16_000)] as const),
      ...([
        ["large", sized(20_000)],
        ["fifth", sized(16_000)],
        ["small", sized(100)],
      ] as const),
    ]),
  );
  expect(Object.keys(schemas)).toEqual(["a1", "a2", "a3", "a4", "small"]);
  expect(unchecked).toEqual(["large", "fifth"]);
  // A master accepts the schema of the example.
  const schema = algorithmSchemas(algorithms).schemas["evolution-strategies"] ?? "";
  expect(ownConfigCheck(schema)?.({ generations: 0 })).toMatchObject([
    { param: "config.generations" },
  ]);
  expect(ownConfigCheck(schema)?.({ environment: "CartPole-v1", hidden: 8 })).toEqual([]);
});
