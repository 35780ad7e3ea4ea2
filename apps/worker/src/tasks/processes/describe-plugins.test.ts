import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createLogger } from "@heddle/observability/logger";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { afterEach, beforeEach, expect, test } from "vitest";
import { trainingPlugins } from "../worker-plugins.ts";
import { describePlugins, NO_PLUGINS } from "./describe-plugins.ts";

const example = (name: string) =>
  fileURLToPath(new URL(`../../../../../examples/plugins/${name}.mjs`, import.meta.url));
const EXAMPLES = [example("grid-world"), example("evolution-strategies")];

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-plugins-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

test("describePlugins: a separate process loads the plugins and names what they add", async () => {
  expect(await describePlugins(EXAMPLES.map((from) => ({ from })))).toEqual({
    algorithms: ["evolution-strategies"],
    environments: ["GridWorld-v0"],
    schemas: { "evolution-strategies": expect.stringContaining('"generations":{"type":"integer"') },
    unchecked: [],
  });
  expect(await describePlugins([])).toEqual(NO_PLUGINS);
  const missing = join(folder, "missing.mjs");
  await expect(describePlugins([{ from: missing }])).rejects.toThrow(
    /missing\.mjs cannot be used: there is no file/,
  );
});

test("describePlugins: printing and timers do no harm; exiting or hanging is refused", async () => {
  const described = async (text: string, limitMs?: number) => {
    const file = join(folder, `${text.length}.mjs`);
    writeFileSync(
      file,
      `${text}\nexport default { name: "p", version: "1", apiVersion: 1, setup() {} };`,
    );
    return describePlugins([{ from: file }], limitMs);
  };
  const prints = `setInterval(() => {}, 1e6); console.log("x".repeat(3e6)); process.on("exit", () => console.log("[]"));`;
  expect(await described(prints)).toEqual(NO_PLUGINS);
  await expect(described("process.exit(0);")).rejects.toThrow(/must not end its process/);
  const deaf = `process.on("SIGTERM", () => {}); for (;;);`;
  await expect(described(deaf, 2_000)).rejects.toThrow(/took longer than 2000 ms/);
});

test("training plugins: one that does not start is left out, and others learn", async () => {
  const file = join(folder, "hangs.mjs");
  writeFileSync(
    file,
    'export default { name: "hangs", version: "1", apiVersion: 1, setup: () => new Promise(() => {}) };',
  );
  const log = createLogger({ service: "test", level: "silent" });
  const set = await PluginSet.start([file, ...EXAMPLES], folder, log, "worker");
  const { algorithms, environments } = await describePlugins(trainingPlugins(set));
  expect({ algorithms, environments }).toEqual({
    algorithms: ["evolution-strategies"],
    environments: ["GridWorld-v0"],
  });
});
