import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import type { DeploymentSpec, EngineEvent, GenerateRequest } from "@heddle/contracts/engine";
import { writeTinyAdapter } from "@heddle/engines/gguf/tiny-adapter";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { scriptedPorts } from "../../test/scripted-ports.ts";
import type { EnginePorts } from "./engine-ports.ts";
import { ReplicaSet } from "./replica-set.ts";

const silent = { info() {}, warn() {}, error() {} };
const weights = { key: "w", file: "w.gguf", sources: ["file:///models/w.gguf"] };
const spec: DeploymentSpec = { key: "m", engine: "llama", weights, options: {} };
const adapter = {
  weights: { key: "lora", file: "lora.gguf", sources: ["file:///models/lora.gguf"] },
  scale: 1,
};
const request: GenerateRequest = {
  input: { kind: "text", text: "Hello" },
  sampling: { temperature: 0, topP: 1, presencePenalty: 0, frequencyPenalty: 0, logitBias: [] },
  choices: 1,
  maxTokens: 2,
  stop: [],
  format: "text",
  adapter,
};

let folder = "";
let pulls = 0;
let pulled: PromiseWithResolvers<string>;
let replicas: ReplicaSet;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-adapted-"));
  await writeTinyAdapter(join(folder, "lora.gguf"), 1);
});
afterAll(async () => {
  await replicas.close();
  await rm(folder, { recursive: true });
});

beforeEach(async () => {
  await replicas?.close();
  pulls = 0;
  pulled = Promise.withResolvers();
  const ports: EnginePorts = {
    ...scriptedPorts,
    pullWeights: (wanted, options) => {
      if (wanted.key !== "lora") return scriptedPorts.pullWeights(wanted, options);
      pulls += 1;
      return pulled.promise;
    },
  };
  replicas = new ReplicaSet(ports, {}, silent, () => {});
  await replicas.load(spec);
  await eventually(() => replicas.statuses()[0]?.phase === "ready");
});

function ask(deadlineMs = 0) {
  const events: EngineEvent[] = [];
  const ended = Promise.withResolvers<EngineEvent>();
  const options = { fairKey: "k", cacheSalt: "", deadlineMs, priority: 0, master: "one" };
  const call = replicas.submit("m", request, options, (event) => {
    events.push(event);
    if (event.type === "done" || event.type === "failed") ended.resolve(event);
  });
  if ("refused" in call) throw new Error(call.refused.message);
  return { events, ended: ended.promise, cancel: call.cancel };
}

test("adapter: calls wait for one pull, and then run", async () => {
  const calls = [ask(), ask()];
  expect(replicas.openRequests).toBe(2);
  pulled.resolve(join(folder, "lora.gguf"));
  for (const { ended } of calls) expect(await ended).toMatchObject({ type: "done" });
  expect(await ask().ended).toMatchObject({ type: "done" });
  expect(pulls).toBe(1);
  expect(replicas.openRequests).toBe(0);
});

test("adapter: a pull that fails fails its calls, and is tried again", async () => {
  const call = ask();
  pulled.reject(new AppError("unavailable", "no source is reached"));
  expect(await call.ended).toMatchObject({
    type: "failed",
    error: { code: "unavailable", message: "no source is reached" },
  });
  pulled = Promise.withResolvers();
  pulled.resolve(join(folder, "lora.gguf"));
  expect(await ask().ended).toMatchObject({ type: "done" });
  expect(pulls).toBe(2);
});

test("adapter: a call may be cancelled, or run out of time, during the pull", async () => {
  const call = ask();
  call.cancel();
  expect(await call.ended).toMatchObject({ type: "failed", error: { code: "cancelled" } });
  expect(await ask(20).ended).toMatchObject({
    type: "failed",
    error: { code: "deadline_exceeded", message: expect.stringContaining("lora.gguf") },
  });
  pulled.resolve(join(folder, "lora.gguf"));
  expect(await ask().ended).toMatchObject({ type: "done" });
  expect(call.events).toHaveLength(1);
});

test("adapter: an unload ends the calls that wait for a pull", async () => {
  const call = ask();
  await replicas.unload("m");
  expect(await call.ended).toMatchObject({ type: "failed", error: { code: "unavailable" } });
  pulled.resolve(join(folder, "lora.gguf"));
  await pulled.promise;
  expect(call.events).toHaveLength(1);
});
