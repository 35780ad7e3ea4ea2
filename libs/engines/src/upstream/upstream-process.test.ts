// holds: engine-upstream-commands

import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { isSameProcess, processStart } from "@heddle/base/process-alive";
import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, expect, it } from "vitest";
import { EngineSession } from "../testing/engine-session.ts";
import { startUpstream } from "./start-upstream.ts";
import { UpstreamPolicy } from "./upstream-policy.ts";
import type { UpstreamCommand } from "./upstream-process.ts";

/** A server that answers with its process and its file, and ends when it is asked to crash. */
const SERVER = `
const [port, file] = process.argv.slice(1);
require("node:http").createServer(async (request, reply) => {
  if (request.headers.authorization !== "Bearer " + process.env.KEY) return reply.writeHead(401).end();
  let body = "";
  for await (const piece of request) body += piece;
  if (body.includes("crash")) process.exit(3);
  reply.writeHead(200, { "content-type": "text/event-stream" });
  const send = (chunk) => reply.write("data: " + JSON.stringify(chunk) + "\\n\\n");
  send({ choices: [{ index: 0, delta: { content: process.pid + " " + file } }] });
  if (body.includes("hang")) return;
  send({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
  send({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 1 } });
  reply.end("data: [DONE]\\n\\n");
}).listen(Number(port), "127.0.0.1");
`;

const command = (script: string): UpstreamCommand => ({
  argv: [process.execPath, "-e", script, "{port}", "{model_file}"],
  env: { KEY: "{api_key}" },
  path: "/v1",
  startTimeoutMs: 60_000,
});
const ask = (content: string) => ({ prompt: [{ role: "user", content }] as const });

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function started(script: string, exits: string[] = []) {
  const session = await EngineSession.over((sink) =>
    startUpstream({
      spec: {
        key: "u",
        engine: "openai",
        upstream: {
          command: "server",
          model: "m",
          dialect: "openai",
          probe: "chat",
          maxConcurrency: 4,
          connectTimeoutMs: 5_000,
          firstByteTimeoutMs: 30_000,
          idleTimeoutMs: 30_000,
          maxRetries: 0,
          probeIntervalMs: 60_000,
        },
        options: {},
      },
      modelPath: "/models/a.gguf",
      access: {
        policy: new UpstreamPolicy([]),
        keyFor: () => Promise.reject(new Error("it needs none")),
        commands: new Map([["server", command(script)]]),
      },
      sink,
      onExit: ({ message }) => exits.push(message),
      onDown: () => {},
      onRecovered: () => {},
      signal: new AbortController().signal,
    }),
  );
  closers.push(() => session.close());
  return session;
}

it("upstream command: it gets port, file and key; its crash fails its calls", async () => {
  const exits: string[] = [];
  const session = await started(SERVER, exits);
  const { texts } = await session.ask(ask("Hi"));
  expect(texts[0]).toMatch(/^\d+ \/models\/a\.gguf$/);
  expect(session.engine.load().residentBytes).toBeGreaterThan(1_000_000);
  expect((await session.ask(ask("crash"))).error?.code).toBe("engine_failed");
  await eventually(() => exits.length > 0, "its end is reported");
  expect(exits).toEqual(["the server server ended with code 3"]);
});

it("upstream command: unloaded, its process ends and its calls fail", async () => {
  const session = await started(SERVER);
  const begun = Promise.withResolvers<string>();
  const { answer } = session.submit(ask("hang"), (event) => {
    if (event.type === "delta") begun.resolve(event.text);
  });
  const pid = Number.parseInt(await begun.promise, 10);
  const since = processStart(pid);
  await session.close();
  expect((await answer).error?.code).toBe("unavailable");
  expect(isSameProcess(pid, since)).toBe(false);
});

it("upstream command: an end before an answer is a failed start", async () => {
  const fault = await started("console.error('no such model'); process.exit(7)").catch(
    (error: Error) => error,
  );
  expect(fault).toMatchObject({
    code: "engine_failed",
    message: expect.stringContaining("ended with code 7"),
  });
  expect(((fault as Error).cause as Error).message).toBe("no such model");
});

it.runIf(process.platform === "linux")(
  "upstream command: it ends with its parent, even when that is killed",
  async () => {
    const url = new URL("./upstream-process.ts", import.meta.url);
    const text = `import { UpstreamProcess } from ${JSON.stringify(fileURLToPath(url))};
      const command = ${JSON.stringify(command(SERVER))};
      const values = { model: "m", modelFile: "f", device: "cpu" };
      const child = await UpstreamProcess.start("server", command, values);
      const until = async () => {
        const headers = { authorization: "Bearer " + child.apiKey };
        const reply = await fetch(new URL("v1", child.baseUrl), { method: "POST", headers, body: "Hi" });
        console.log((await reply.text()).match(/"content":"(\\d+)/)[1]);
      };
      for (;;) try { await until(); break; } catch { await new Promise((r) => setTimeout(r, 50)); }`;
    const parent = spawn(process.execPath, ["--input-type=module", "-e", text], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = (await once(parent.stdout, "data")) as [Buffer];
    const pid = Number(line.toString());
    const since = processStart(pid);
    expect(isSameProcess(pid, since)).toBe(true);
    parent.kill("SIGKILL");
    await eventually(() => !isSameProcess(pid, since), "the server has ended");
  },
);
