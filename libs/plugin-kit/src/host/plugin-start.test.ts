// holds: plugins-starts

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { ALONE } from "../loading/plugin-list.ts";
import { HostedPlugin } from "./hosted-plugin.ts";
import { PluginSet } from "./plugin-set.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-plugin-starts-"));
afterAll(() => rmSync(folder, { recursive: true }));
const log = { info: () => {}, warn: () => {}, error: () => {} };

let count = 0;
/** A plugin with this code in its module, its setup, and its own fields. */
function plugin({ module = "", setup = "", fields = "" }): string {
  const file = join(folder, `plugin-${++count}.mjs`);
  writeFileSync(
    file,
    `import { z } from "heddle/plugin-kit"; import { writeSync } from "node:fs"; ${module};
     export default { name: "plugin", version: "1", apiVersion: 1, ${fields} setup() { ${setup} } };`,
  );
  return file;
}

const COUNTED = [
  ["its setup computes without end", { setup: "for (;;);" }, "late", "its setup has not ended"],
  [
    "its setup never settles",
    { setup: "return new Promise(() => {});" },
    "late",
    "its setup takes",
  ],
  [
    "the check of its config computes without end",
    { fields: "config: z.any().refine(() => { for (;;); })," },
    "late",
    "the check of its config has not ended",
  ],
  ["its module computes without end", { module: "for (;;)" }, "late", "its module has not ended"],
  [
    "its module awaits without end",
    { module: "await new Promise(() => {})" },
    "late",
    "its module takes longer than",
  ],
  ["its module throws", { module: "throw new Error('no!')" }, "threw", "no!"],
  [
    "a module that it imports is missing",
    { module: 'await import("left-out")' },
    "threw",
    "Cannot find package 'left-out'",
  ],
  [
    "it throws what throws when it is read",
    { setup: "throw { get [Symbol.toPrimitive]() { throw 1; } };" },
    "threw",
    "it threw what cannot be shown",
  ],
  ["its module ends its process", { module: "process.exit(3)" }, "exited", "the exit code 3"],
  [
    "an error of its setup is not caught",
    { setup: "setImmediate(() => { throw new Error('lost'); }); return new Promise(() => {});" },
    "exited",
    "the exit code 1",
  ],
  [
    "its setup fills the memory",
    { setup: "const all = []; for (;;) all.push(Buffer.alloc(1e6, 1));" },
    "memory",
    "more than 300",
  ],
] as const;

test.concurrent.for(COUNTED)(
  "refused at its start, counted: %s",
  async ([, code, kind, reason]) => {
    const entry = { ...ALONE, from: plugin(code), memoryMib: 300 };
    const { state, reason: why, faults } = (await HostedPlugin.start(entry, log)).status();
    expect(state).toBe("refused");
    expect(why).toContain(reason);
    const none = { threw: 0, late: 0, blocked: 0, exited: 0, memory: 0 };
    expect(faults).toEqual({ ...none, [kind]: 1 });
  },
);

const DECLARED = [
  ["its name", "get name() { throw new Error('hidden'); },", "hidden"],
  ["its capabilities", 'capabilities: "routes",', "its `capabilities` are not a list"],
  ["its setup", "get setup() { return undefined; },", "its `setup` is not a function"],
] as const;

test.concurrent.for(DECLARED)(
  "refused at its start, no fault: %s is of a wrong type or throws",
  async ([, fields, reason]) => {
    const file = join(folder, `plugin-${++count}.mjs`);
    const text = `export default { name: "plugin", version: "1", apiVersion: 1, setup() {}, ${fields} };`;
    writeFileSync(file, text);
    const { reason: why, faults } = (
      await HostedPlugin.start({ ...ALONE, from: file }, log)
    ).status();
    expect(why).toContain(reason);
    expect(Object.values(faults).every((count) => count === 0)).toBe(true);
  },
);

/** A module that says what the plugin adds, after a change of it. */
function forged(change: string): string {
  const lists = `["routes","admission","filters","scores","sinks","algorithms","environments","commands","blocks","engines","executors","panels"]`;
  return `const none = Object.fromEntries(${lists}.map((name) => [name, []]));
    const description = { ...none, name: "forged", version: "1", capabilities: [], digest: "" };
    ${change}
    const said = JSON.stringify({ type: "loaded", description });
    const nested = '{"a":'.repeat(5_000) + "1" + "}".repeat(5_000);
    const bytes = Buffer.from(said.replace('"NESTED"', nested) + "\\n");
    const wait = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    for (let at = 0; at < bytes.length; ) { try { at += writeSync(3, bytes, at); } catch { wait(5); } }
    wait()`;
}

test.concurrent.for([
  ["has a name that leads elsewhere", 'description.name = "../../elsewhere";', /"name"/],
  ["is nested deeply", 'description.config = { of: "NESTED" };', /more than 256 levels/],
  ["is huge", 'description.config = { of: "x".repeat(5e6) };', /characters, more than/],
  ["is wrong in many parts", 'description.filters = Array(1e5).fill("/");', /^[\s\S]{0,2100}$/],
] as const)("a plugin whose description %s is refused", async ([, change, reason]) => {
  const from = plugin({ module: forged(change) });
  const status = (await HostedPlugin.start({ ...ALONE, from }, log)).status();
  expect(status.state).toBe("refused");
  expect(status.reason).toMatch(/describes itself wrongly: /);
  expect(status.reason).toMatch(reason);
});

test.concurrent("plugins that hang at their start delay that of their process only so long", async () => {
  const files = Array.from({ length: 9 }, () => plugin({ setup: "return new Promise(() => {});" }));
  const set = await PluginSet.start(files, folder, log);
  const reasons = set.statuses().map(({ reason }) => reason);
  expect(reasons[0]).toContain("its setup takes longer than");
  expect(reasons[8]).toContain("it was not started");
  expect(set.usable).toEqual([]);
});
