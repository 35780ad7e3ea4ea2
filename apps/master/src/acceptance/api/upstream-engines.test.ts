// holds: engine-conformance, engine-upstreams, engine-upstream-policy, engine-upstream-commands

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isProcessAlive } from "@heddle/base/process-alive";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import type { Model } from "@heddle/contracts/api/models";
import { engineConformance } from "@heddle/engines/testing/engine-conformance";
import { EngineSession } from "@heddle/engines/testing/engine-session";
import { startUpstream } from "@heddle/engines/upstream/start-upstream";
import { UpstreamPolicy } from "@heddle/engines/upstream/upstream-policy";
import { afterAll, beforeAll, expect, it } from "vitest";
import { NO_END, only, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The engine `openai` over this platform's own API: upstream, master, worker, libllama.

let cluster: ProcessCluster;
let folder: string;

/** A command of the worker: it answers with its process and its file, and crashes when asked. */
const SERVER = `
const [port, file] = process.argv.slice(1);
require("node:http").createServer(async (request, reply) => {
  let body = "";
  for await (const piece of request) body += piece;
  if (body.includes("crash")) process.exit(3);
  reply.writeHead(200, { "content-type": "text/event-stream" });
  const send = (chunk) => reply.write("data: " + JSON.stringify(chunk) + "\\n\\n");
  send({ choices: [{ index: 0, delta: { content: process.pid + " " + file } }] });
  send({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
  send({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 1 } });
  reply.end("data: [DONE]\\n\\n");
}).listen(Number(port), "127.0.0.1");
`;
beforeAll(async () => {
  // The worker's file names the master's address, so that is chosen before.
  folder = await mkdtemp(join(tmpdir(), "heddle-upstreams-"));
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const upstreams = join(folder, "upstreams.json");
  const keys = { cluster: { file: join(folder, "key"), origins: [origin] } };
  const argv = [process.execPath, "-e", SERVER, "{port}", "{model_file}"];
  const commands = { echo: { argv } };
  await writeFile(upstreams, JSON.stringify({ origins: [origin], keys, commands }));
  cluster = await ProcessCluster.start({
    masterFlags: ["--http-port", String(port)],
    workerFlags: ["--upstreams", upstreams],
  });
  await writeFile(keys.cluster.file, `${cluster.adminKey}\n`);
});
afterAll(async () => {
  await cluster.close();
  await rm(folder, { recursive: true });
});

engineConformance("an upstream that is Heddle", () =>
  EngineSession.over((sink) =>
    startUpstream({
      spec: {
        key: "heddle-upstream",
        engine: "openai",
        upstream: {
          baseUrl: `${cluster.url}/api/v1`,
          model: TINY,
          dialect: "heddle",
          apiKey: "cluster",
          probe: "chat",
          maxConcurrency: 4,
          connectTimeoutMs: 5_000,
          firstByteTimeoutMs: 30_000,
          idleTimeoutMs: 30_000,
          maxRetries: 2,
          probeIntervalMs: 60_000,
        },
        options: { contextTokens: 4_096 },
      },
      modelPath: undefined,
      access: {
        policy: new UpstreamPolicy([new URL(cluster.url).origin]),
        keyFor: async () => cluster.adminKey,
        commands: new Map(),
      },
      sink,
      onExit: () => {},
      onDown: () => {},
      onRecovered: () => {},
      signal: new AbortController().signal,
    }),
  ),
);

// The same upstream as a registered model: master, worker, upstream, master, worker, libllama.

const ROUTED = "routed";
const register = (engine: Record<string, unknown>, more: Record<string, unknown> = {}) =>
  cluster.request("POST", "/api/v1/models", { id: ROUTED, engine, context_window: 4096, ...more });
const remote = (more: Record<string, unknown> = {}) => ({
  kind: "openai",
  base_url: `${cluster.url}/api/v1`,
  model: TINY,
  dialect: "heddle",
  api_key: "cluster",
  ...more,
});
const modelOf = async () =>
  (await cluster.request("GET", `/api/v1/models/${ROUTED}`)).json() as Promise<Model>;
const removed = () => cluster.request("DELETE", `/api/v1/models/${ROUTED}`);
const messages = [{ role: "user" as const, content: "Hi" }];
const answer = { model: ROUTED, messages, max_tokens: 5, logit_bias: NO_END };

it("upstream model: served through its worker, streamed too, with true usage", async () => {
  const reply = await register(remote());
  expect(reply.status).toBe(200);
  const said = await reply.text();
  expect(said).not.toContain(cluster.adminKey);
  expect(JSON.parse(said)).toMatchObject({
    weights: null,
    upstream: { base_url: `${cluster.url}/api/v1`, command: null, model: TINY, dialect: "heddle" },
  });
  const { usage } = await cluster.openai.chat.completions.create(answer);
  expect(usage).toMatchObject({ completion_tokens: 5 });
  expect(usage?.prompt_tokens).toBeGreaterThan(0);
  const stream = await cluster.openai.chat.completions.create({
    ...answer,
    stream: true,
    stream_options: { include_usage: true },
  });
  let last: unknown;
  for await (const chunk of stream) last = chunk.usage;
  expect(last).toMatchObject(usage ?? {});
  expect(await modelOf()).toMatchObject({
    status: "ready",
    served_context_tokens: 4096,
    replicas: [{ device: "remote" }],
  });
  expect(cluster.output).not.toContain(cluster.adminKey);
});

it("upstream model: tools, embeddings and text go through; a refusal has its param", async () => {
  const { data } = await cluster.openai.embeddings.create({ model: ROUTED, input: ["a", "b"] });
  expect(data.map(({ embedding }) => embedding.length > 0)).toEqual([true, true]);
  const text = { model: ROUTED, prompt: "abc", max_tokens: 3, logit_bias: only("z") };
  expect((await cluster.openai.completions.create(text)).choices[0]?.text).toBe("zzz");
  const called = await cluster.openai.chat.completions.create({
    ...answer,
    max_tokens: 256,
    tools: [
      {
        type: "function",
        function: {
          name: "go",
          parameters: { type: "object", properties: {}, additionalProperties: false },
        },
      },
    ],
    tool_choice: "required",
    parallel_tool_calls: false,
  });
  expect(called.choices[0]).toMatchObject({
    finish_reason: "tool_calls",
    message: { content: null, tool_calls: [{ type: "function", function: { name: "go" } }] },
  });
  const scored = { ...text, echo: true, logprobs: 1, seed: 1, temperature: 0 };
  const [through, direct] = await Promise.all(
    [ROUTED, TINY].map((model) => cluster.openai.completions.create({ ...scored, model })),
  );
  expect(through?.choices[0]?.text).toBe("abczzz");
  expect(through?.choices[0]?.logprobs?.tokens).toEqual(direct?.choices[0]?.logprobs?.tokens);
  expect(through?.choices[0]?.logprobs?.text_offset).toEqual([0, 1, 2, 3, 4, 5]);
  expect(through?.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 3 });
  const budget = { thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 2048 };
  const limited = await cluster.request("POST", "/api/v1/messages", {
    model: ROUTED,
    messages,
    ...budget,
  });
  expect([limited.status, await limited.text()]).toEqual([
    400,
    expect.stringContaining("thinking"),
  ]);
  const budgeted = { ...answer, thinking_token_budget: 8 };
  await expect(cluster.openai.chat.completions.create(budgeted)).rejects.toMatchObject({
    status: 400,
    param: "thinking_token_budget",
  });
  await removed();
  await register(remote({ dialect: "openai" }));
  const refused = cluster.openai.chat.completions.create({ ...answer, top_k: 3 } as typeof answer);
  await expect(refused).rejects.toMatchObject({ status: 400, param: "top_k" });
  await removed();
});

it("upstream model: bad registrations are refused by their field", async () => {
  for (const [param, engine, more] of [
    ["engine", remote({ command: "x" })],
    ["engine", remote({ base_url: undefined })],
    ["engine.base_url", remote({ base_url: "ftp://a/b" })],
    ["engine.base_url", remote({ base_url: "https://user:pass@a/b" })],
    ["engine.base_url", remote({ base_url: "https://a/b?key=1" })],
    ["options.threads", remote(), { options: { threads: 1 } }],
    ["source", remote(), { source: "builtin://tiny" }],
    ["resources", remote(), { resources: { gpu_count: 1 } }],
  ] as [string, Record<string, unknown>, Record<string, unknown>?][]) {
    const reply = await register(engine, more);
    expect(await reply.json(), param).toMatchObject({ error: { param } });
    expect(reply.status).toBe(400);
  }
});

it("upstream model: an origin, key or command that is not allowed is never asked", async () => {
  for (const [engine, said] of [
    [remote({ base_url: "http://169.254.169.254/latest" }), /may not ask http:\/\/169\.254/],
    [remote({ api_key: "other" }), /has no key other/],
    [remote({ base_url: undefined, command: "rm" }), /has no command rm/],
  ] as const) {
    await register(engine);
    await eventually(
      async () => said.test((await modelOf()).replicas[0]?.message ?? ""),
      String(said),
    );
    expect((await modelOf()).status).toBe("failed");
    const call = cluster.openai.chat.completions.create(answer);
    await expect(call).rejects.toMatchObject({ status: 503 });
    await removed();
  }
});

it("upstream model: a command reads the weights, and restarts after a crash", async () => {
  const started = await register(
    { kind: "openai", command: "echo", model: "m" },
    { source: "builtin://tiny" },
  );
  expect(await started.json()).toMatchObject({
    weights: { file: "tiny.gguf" },
    backing: "m, by echo",
  });
  const ask = async (content: string) => {
    const params = { model: ROUTED, messages: [{ role: "user" as const, content }] };
    return (await cluster.openai.chat.completions.create(params)).choices[0]?.message.content ?? "";
  };
  const first = await ask("Hi");
  expect(first).toMatch(/^\d+ \/.*tiny\.gguf$/);
  await expect(ask("crash")).rejects.toMatchObject({ status: 502, code: "engine_failed" });
  let second = "";
  await eventually(async () => {
    second = await ask("Hi").catch(() => "");
    return second !== "";
  }, "it answers again");
  expect(second).not.toBe(first);
  await removed();
  const pid = Number.parseInt(second, 10);
  await eventually(() => !isProcessAlive(pid), "its process has ended");
});
