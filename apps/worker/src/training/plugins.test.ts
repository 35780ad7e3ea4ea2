import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import { ownConfigCheck } from "@heddle/contracts/plugin-config";
import { parsePluginTraining, parseTrainingConfig } from "@heddle/contracts/training";
import { initialParameters } from "@heddle/training/initialize";
import type { ParameterClient, Parameters } from "@heddle/training/parameter-client";
import type { RoundReport } from "@heddle/training/training-loop";
import { afterEach, beforeEach, expect, it, test } from "vitest";
import { algorithmSchemas } from "./algorithm-schemas.ts";
import { describePlugins, NO_PLUGINS } from "./describe-plugins.ts";
import type { Lineage } from "./lineage.ts";
import { loadPlugins } from "./load-plugins.ts";
import { pluginPlan } from "./plugin-plan.ts";
import { ppoPlan } from "./ppo-plan.ts";
import type { TrainingPlan } from "./training-plan.ts";

const example = (name: string) =>
  fileURLToPath(new URL(`../../../../examples/plugins/${name}.mjs`, import.meta.url));
const EXAMPLES = [example("grid-world"), example("evolution-strategies")];
const backend = onnxBackend({ device: "cpu", threads: 1 });
const SOLE = { rank: 0, tasks: 1 };

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

async function runPlan(plan: TrainingPlan): Promise<{ told: RoundReport[]; end: Parameters }> {
  const parameters = initialParameters(plan.parameters, seededRandom(1));
  const told: RoundReport[] = [];
  await plan.run({
    ...{ client: stepper(parameters), parameters, done: 0, state: undefined },
    signal: new AbortController().signal,
    report: (round) => {
      told.push(round);
      return Promise.resolve(round.reached ? "stop" : "go on");
    },
  });
  return { told, end: parameters };
}

test("the example environment is one that ppo can be trained on, and is learned", async () => {
  const plugins = await loadPlugins(EXAMPLES);
  const config = parseTrainingConfig("ppo", {
    ...{ environment: "GridWorld-v0", total_timesteps: 40_000, target_return: 0.5 },
    learning_rate: 1e-3,
  });
  if (config.algorithm !== "ppo") throw new Error("a ppo config was parsed as another");
  const { told } = await runPlan(ppoPlan(config, plugins.environments, backend, SOLE));
  expect(told.at(-1)?.reached, `the return is ${told.at(-1)?.reward}`).toBe(true);
}, 120_000);

test("the example algorithm learns CartPole, stops at its target and leaves a policy", async () => {
  const plugins = await loadPlugins(EXAMPLES);
  const config = parsePluginTraining("evolution-strategies", {
    ...{ seed: 3, environment: "CartPole-v1", target_return: 100, learning_rate: 0.5 },
  });
  const plan = pluginPlan(config, plugins, backend, SOLE);
  expect(plan.rounds).toBe(100);
  const { told, end } = await runPlan(plan);
  expect(told[0]?.reward).toBeLessThan(80);
  expect(told.at(-1)?.reward).toBeGreaterThanOrEqual(100);
  await plan.writeArtifacts(folder, end, {} as Lineage);
  const left = spawnSync("ls", [folder], { encoding: "utf8" });
  expect(left.stdout.trim()).toBe("policy.onnx");
}, 120_000);

it.each([
  [{ generations: 0 }, /config\.generations/],
  [{ generatoins: 5 }, /generatoins/],
  [{ deviation: "big" }, /config\.deviation/],
  [{ environment: "Nowhere-v0" }, /no environment "Nowhere-v0": there are .*GridWorld-v0/],
])("the plugin's schema refuses %o by name", async (config, message) => {
  const plugins = await loadPlugins(EXAMPLES);
  const parsed = parsePluginTraining("evolution-strategies", config);
  expect(() => pluginPlan(parsed, plugins, backend, SOLE)).toThrow(message);
});

test("fields that all jobs have are checked for a plugin's algorithm too, and are not its own", () => {
  const parsed = parsePluginTraining("mine", { seed: 7, consistency: "ssp", staleness: 2, x: 1 });
  expect(parsed).toMatchObject({ seed: 7, consistency: "ssp", own: { x: 1 } });
  expect(() => parsePluginTraining("mine", { seed: -1 })).toThrow(/config\.seed/);
});

test("an algorithm that nobody has is refused with those that there are", async () => {
  const plugins = await loadPlugins(EXAMPLES);
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
  [`export default { ${good} };`, /its setup is no function/],
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
])("a faulty plugin is refused with its file and the reason: %s", async (text, reason) => {
  const file = join(folder, "faulty.mjs");
  writeFileSync(file, text);
  await expect(loadPlugins([file])).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringMatching(reason),
  });
  await expect(loadPlugins([file])).rejects.toThrow(file);
});

test("a worker learns what plugins have from a process of their own", async () => {
  expect(await describePlugins(EXAMPLES)).toEqual({
    algorithms: ["evolution-strategies"],
    environments: ["GridWorld-v0"],
    schemas: { "evolution-strategies": expect.stringContaining('"generations":{"type":"integer"') },
    unchecked: [],
  });
  expect(await describePlugins([])).toEqual(NO_PLUGINS);
  const missing = join(folder, "missing.mjs");
  await expect(describePlugins([missing])).rejects.toThrow(
    /missing\.mjs cannot be used: Cannot find/,
  );
});

test("schemas are told as long as there is room for them, and none of the example's is left out", async () => {
  const { algorithms } = await loadPlugins(EXAMPLES);
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
  // A master looks at what it is told of the example.
  const told = algorithmSchemas(algorithms).schemas["evolution-strategies"] ?? "";
  expect(ownConfigCheck(told)?.({ generations: 0 })).toMatchObject([
    { param: "config.generations" },
  ]);
  expect(ownConfigCheck(told)?.({ environment: "CartPole-v1", hidden: 8 })).toEqual([]);
});
