import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../test/http.ts";

const MASTER = fileURLToPath(new URL("../dist/main.js", import.meta.url));
const WORKER = fileURLToPath(new URL("../../worker/dist/main.js", import.meta.url));

let data: string;
let openai: OpenAI;
let worker: ChildProcess;
const children: ChildProcess[] = [];

/** Starts a process and gives the fields of its `ready` line. */
async function start(main: string, flags: string[]) {
  const child = spawn(process.execPath, [main, ...flags]);
  children.push(child);
  let out = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => {
      out += chunk;
    });
  }
  const find = () => /^.*"msg":"ready".*$/m.exec(out)?.[0];
  await eventually(() => find() !== undefined || child.exitCode !== null, 30_000);
  const line = find();
  if (line === undefined) throw new Error(`${main} did not start: ${out}`);
  return { child, ready: JSON.parse(line) as { http: string; grpc: string } };
}

beforeAll(async () => {
  data = await mkdtemp(join(tmpdir(), "heddle-cluster-"));
  const token = ["--cluster-token-file", join(data, "token")];
  const ports = ["--http-port", "0", "--grpc-port", "0", "--profile", "tiny"];
  const key = ["--bootstrap-key-file", join(data, "key")];
  const { ready } = await start(MASTER, [
    "--data",
    join(data, "master"),
    ...ports,
    ...key,
    ...token,
  ]);
  const flags = ["--data", join(data, "worker"), "--grpc-host", "127.0.0.1", "--grpc-port", "0"];
  const cache = ["--models-cache", join(data, "cache"), "--masters", ready.grpc];
  ({ child: worker } = await start(WORKER, [...flags, ...cache, ...token]));
  const apiKey = (await readFile(join(data, "key"), "utf8")).trim();
  openai = new OpenAI({ baseURL: `${ready.http}/api/v1`, apiKey, maxRetries: 0 });
});

afterAll(async () => {
  for (const child of children) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill("SIGTERM");
    await once(child, "exit");
  }
  await rm(data, { recursive: true });
});

const hello = {
  model: "FamilyB-1-8B",
  messages: [{ role: "user" as const, content: "hello" }],
  seed: 7,
};

describe("a master with one worker, as processes", () => {
  it("answers the official client the same at once and streamed, with a seed", async () => {
    const whole = await openai.chat.completions.create({ ...hello, max_tokens: 12 });
    expect(whole.usage?.completion_tokens).toBeGreaterThan(0);
    const stream = await openai.chat.completions.create({ ...hello, max_tokens: 12, stream: true });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    expect(text).toBe(whole.choices[0]?.message.content);
  });

  it("ends a stream whose worker is killed with an error, not with success", async () => {
    const stream = await openai.chat.completions.create({
      ...hello,
      max_tokens: 4000,
      logit_bias: { "0": -100, "1": -100, "2": -100 },
      stream: true,
    });
    await expect(async () => {
      for await (const chunk of stream) {
        if (chunk.choices[0]?.delta.content) worker.kill("SIGKILL");
      }
    }).rejects.toMatchObject({ code: "worker_lost" });
  });
});
