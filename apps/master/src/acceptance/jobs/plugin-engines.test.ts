// holds: plugins-engines

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { Model } from "@heddle/contracts/api/models";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";

// A model that an engine of a plugin serves, on a real master and worker.

const folder = mkdtempSync(join(tmpdir(), "heddle-plugin-engines-"));
let cluster: ProcessCluster;

const PARROT = `
import { definePlugin, refusal, z } from "heddle/plugin-kit";
export default definePlugin({ name: "parrot", version: "1", apiVersion: 1, capabilities: ["engines"],
  config: z.strictObject({ greeting: z.string() }),
  setup({ config, engines }) {
    engines.add({ name: "echo", async *answer({ model, messages, parameters, signal }) {
      const said = messages.at(-1).content;
      if (said === "crash") process.exit(3);
      if (said === "refuse") throw refusal("invalid_value", "not that word", "messages");
      if (said === "throw") throw new Error("oh no");
      if (said === "secrets") yield Object.keys(process.env).filter((name) => /HEDDLE|PLUGIN/.test(name)).join();
      for (const word of [config.greeting, said, "to", model, parameters.temperature]) yield word + " ";
      while (said === "on" && !signal.aborted) yield "and on ";
    } });
  } });`;

const SAID = "You said";

beforeAll(async () => {
  const file = join(folder, "parrot.mjs");
  writeFileSync(file, PARROT);
  const list = join(folder, "plugins.json");
  writeFileSync(list, JSON.stringify({ plugins: [{ from: file, config: { greeting: SAID } }] }));
  cluster = await ProcessCluster.start({ workerFlags: ["--plugins", list] });
  const engine = { kind: "openai", command: "parrot.echo", model: "polly" };
  const reply = await cluster.request("POST", "/api/v1/models", { id: "bird", engine });
  expect([reply.status, await reply.text()]).toEqual([200, expect.stringContaining("polly")]);
});
afterAll(async () => {
  await cluster.close();
  rmSync(folder, { recursive: true });
});

const bodyOf = (content: string, more = {}) => ({
  model: "bird",
  messages: [{ role: "user" as const, content }],
  temperature: 0.5,
  ...more,
});
const ask = (content: string, more = {}) =>
  cluster.openai.chat.completions.create({ ...bodyOf(content, more), stream: false });

test("engine of a plugin: answers whole and streamed, with its usage", async () => {
  const { choices, usage } = await ask("hello");
  expect(choices[0]).toMatchObject({
    finish_reason: "stop",
    message: { content: "You said hello to polly 0.5 " },
  });
  expect(usage).toMatchObject({ prompt_tokens: 2, completion_tokens: 5 });
  const stream = await cluster.openai.chat.completions.create({ ...bodyOf("hi"), stream: true });
  const pieces: string[] = [];
  for await (const { choices } of stream) pieces.push(choices[0]?.delta.content ?? "");
  expect(pieces.join("")).toBe("You said hi to polly 0.5 ");
  expect(pieces.length).toBeGreaterThan(1);
});

test("engine of a plugin: an answer ends at its length, and at its stop text", async () => {
  const { choices, usage } = await ask("on", { max_tokens: 7 });
  expect(choices[0]).toMatchObject({ finish_reason: "length" });
  expect(usage).toMatchObject({ completion_tokens: 7 });
  const stopped = await ask("on", { stop: ["ly 0", "said no"] });
  expect(stopped.choices[0]?.message.content).toBe("You said on to pol");
});

test("engine of a plugin: refusals and faults differ, and it sees no secrets", async () => {
  await expect(ask("refuse")).rejects.toMatchObject({ status: 400, message: /not that word/ });
  await expect(ask("hello", { n: 2 })).rejects.toMatchObject({ status: 400 });
  await expect(ask("throw")).rejects.toMatchObject({ status: 502 });
  const { choices } = await ask("secrets");
  expect(choices[0]?.message.content).toMatch(/^You said/);
  // Arguments of processes are for all users to see; its settings are not among them.
  const lines = execFileSync("ps", ["-wweo", "args="], { maxBuffer: 2 ** 26 }).toString();
  const words = lines.split(/\s/).map((word) => Buffer.from(word, "base64").toString());
  expect(lines).toContain("plugin-engine-main");
  expect([...words, lines].filter((text) => text.includes(SAID))).toEqual([]);
});

test("engine of a plugin: one that ends is started again", async () => {
  await expect(ask("crash", { max_tokens: 1 })).rejects.toThrow();
  const answers = async () => {
    const { choices } = await ask("again");
    return choices[0]?.message.content?.startsWith("You said again") ?? false;
  };
  await eventually(() => answers().catch(() => false), "it answers again");
  const reply = await cluster.request("GET", "/api/v1/models/bird");
  expect(((await reply.json()) as Model).status).toBe("ready");
});
