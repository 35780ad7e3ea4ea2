// holds: engine-conformance

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { engineConformance } from "../../testing/engine-conformance.ts";
import { EngineSession } from "../../testing/engine-session.ts";
import type { EngineLauncher } from "../parent/engine-link.ts";
import { startLlamaEngine } from "../parent/llama-engine.ts";
import { engineHostCommand, HostedEngine } from "./hosted-engine.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-host-"));
const modelPath = join(folder, "tiny.gguf");
const hosts: ChildProcess[] = [];
beforeAll(() => writeTinyModel(modelPath));
afterAll(() => rmSync(folder, { recursive: true }));

/** A host as a process of this machine, in place of a container's. */
const launch: EngineLauncher = (listener) => {
  const path = join(folder, String(hosts.length));
  const server = createServer().listen(path);
  const connected = once(server, "connection").then(([socket]) => socket as Socket);
  const [node = "", ...args] = engineHostCommand(path);
  const host = spawn(node, args, { stdio: "ignore" });
  hosts.push(host);
  const close = async () => {
    server.close();
    host.kill("SIGKILL");
  };
  return new HostedEngine({ connected, lastWords: () => "with a machine", close }, listener);
};

const open = () =>
  EngineSession.over((sink) =>
    startLlamaEngine({
      modelPath,
      options: { threads: 1, maxSequences: 4 },
      sink,
      child: { launch },
    }),
  );

engineConformance("libllama in a container of its own", open);

it("engine host: its end fails the calls by its place's words; another takes over", async () => {
  const session = await open();
  const begun = Promise.withResolvers<void>();
  const call = session.submit({ prompt: "a", maxTokens: 4_000 }, () => begun.resolve());
  await begun.promise;
  hosts.at(-1)?.kill("SIGKILL");
  const { error } = await call.answer;
  expect(error).toMatchObject({ code: "engine_failed" });
  expect(error?.message).toContain("the engine process ended with a machine");
  const works = async () => (await session.ask({ prompt: "a" })).error === undefined;
  await expect.poll(works, { timeout: 60_000 }).toBe(true);
  await session.close();
});

it("engine host: a model that cannot be loaded is named, and nothing is left running", async () => {
  const wrong = {
    modelPath: join(folder, "none.gguf"),
    options: {},
    sink: () => {},
    child: { launch },
  };
  await expect(startLlamaEngine(wrong)).rejects.toThrow(/none\.gguf/);
  await expect.poll(() => hosts.every(isEnded)).toBe(true);
});

function isEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}
