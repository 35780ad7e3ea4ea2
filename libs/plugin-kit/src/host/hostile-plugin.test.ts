// holds: plugins-contained

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import { afterAll, expect, test } from "vitest";
import { ALONE } from "../loading/plugin-list.ts";
import type { RouteCall } from "./plugin-calls.ts";

// Plugins that want more than they may.

const folder = mkdtempSync(join(tmpdir(), "heddle-hostile-"));
const running: HostedPlugin[] = [];
afterAll(() => {
  for (const plugin of running) plugin.close();
  rmSync(folder, { recursive: true });
});

const note = () => undefined;
async function start(from: string): Promise<HostedPlugin> {
  const entry = { ...ALONE, from, base: folder };
  const started = await HostedPlugin.start(entry, { info: note, warn: note, error: note });
  running.push(started);
  return started;
}

function pluginText(name: string, adds: string): string {
  return `import { z } from "heddle/plugin-kit";
    export default { name: "${name}", version: "1", apiVersion: 1,
      capabilities: ["routes", "admission", "blocks", "scheduler"],
      setup({ routes, admission, blocks, scheduler }) { ${adds} } };`;
}

const CALL: RouteCall = {
  point: "route",
  key: "GET /do",
  params: {},
  query: {},
  body: undefined,
  caller: undefined,
};
const ask = (plugin: HostedPlugin) => plugin.call(CALL, { timeoutMs: 10_000 });

test("invalid answers that a plugin sends itself are faults of the call", async () => {
  const file = join(folder, "sends.mjs");
  const adds = `let id = 0;
    const send = (value) => writeSync(3, JSON.stringify({ type: "result", id: ++id, value }) + "\\n");
    routes.add({ method: "GET", path: "/do", permission: "public", summary: "S.",
      handle: () => send({ ok: true }) });
    admission.add({ name: "rule", review: () => void send(null) });
    blocks.add({ name: "block", version: 1, summary: "S.", config: z.object({}),
      job: () => (send(["true"]), { command: "true" }) });`;
  writeFileSync(file, `import { writeSync } from "node:fs"; ${pluginText("sends", adds)}`);
  const plug = await start(file);
  const submission = { caller: { id: "a", name: "a", project: "a" }, isDryRun: false };
  for (const asked of [
    CALL,
    { point: "admission", name: "rule", job: {} as never, submission },
    { point: "block", name: "block", config: {}, inputs: [] },
  ] as const) {
    const answer = plug.call(asked, { timeoutMs: 10_000 });
    await expect(answer, asked.point).rejects.toMatchObject({ code: "server_error" });
  }
  expect(plug.status()).toMatchObject({ state: "ready", faults: { threw: 3 } });
});

test("filters and scores that give promises, or no finite number, are faults", async () => {
  const job = {
    id: "j",
    name: "j",
    project: "p",
    queue: "q",
    tasks: 1,
    gpusPerTask: 0,
    labels: {},
  };
  const node = { id: "n", name: "n", labels: {}, gpuType: "", gpus: 0, rack: "" };
  for (const [name, rule, fault] of [
    [
      "filters",
      'filter({ name: "f", admits: async () => false });',
      "the filter f gives a promise",
    ],
    ["hangs", 'score({ name: "s", score: () => new Promise(() => {}) });', "the score s gives"],
    ["unbounded", 'score({ name: "s", score: () => Infinity });', "the score s gives Infinity"],
  ] as const) {
    const file = join(folder, `${name}.mjs`);
    writeFileSync(file, pluginText(name, `scheduler.${rule}`));
    const plug = await start(file);
    const asked = plug.call({ point: "nodes", jobs: [job], nodes: [node] }, { timeoutMs: 10_000 });
    await expect(asked, name).rejects.toMatchObject({
      cause: { message: expect.stringContaining(fault) },
    });
    expect(plug.status().faults.threw).toBe(1);
  }
});

test("a plugin that prints without end does not keep this process busy", async () => {
  const file = join(folder, "prints.mjs");
  const prints = `const text = ("x".repeat(79) + "\\n").repeat(800);
    const print = () => { for (let i = 0; i < 20; i++) writeSync(1, text); setImmediate(print); };
    routes.add({ method: "GET", path: "/do", permission: "public", summary: "S.",
      handle: () => void print() });`;
  writeFileSync(file, `import { writeSync } from "node:fs"; ${pluginText("prints", prints)}`);
  const plug = await start(file);
  void ask(plug).catch(() => undefined);
  await delay(1_000);
  const before = performance.eventLoopUtilization();
  await delay(2_000);
  expect(performance.eventLoopUtilization(before).utilization).toBeLessThan(0.5);
  plug.close();
});
