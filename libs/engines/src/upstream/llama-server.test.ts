import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe } from "vitest";
import { writeTinyModel } from "../gguf/tiny-model.ts";
import { engineConformance } from "../testing/engine-conformance.ts";
import { EngineSession } from "../testing/engine-session.ts";
import { startUpstream } from "./start-upstream.ts";
import { UpstreamPolicy } from "./upstream-policy.ts";

/** The path of llama.cpp's own server; without it these tests are skipped. */
const SERVER = process.env["HEDDLE_LLAMA_SERVER"] ?? "";

describe.skipIf(SERVER === "")("llama-server (HEDDLE_LLAMA_SERVER names its program)", () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "heddle-llama-server-"));
    await writeTinyModel(join(folder, "tiny.gguf"));
  });
  afterAll(() => rm(folder, { recursive: true }));

  engineConformance(
    "llama-server, as a command",
    () =>
      EngineSession.over((sink) =>
        startUpstream({
          spec: {
            key: "llama-server",
            engine: "openai",
            upstream: {
              command: "llama-server",
              model: "tiny",
              dialect: "llama-server",
              probe: "completions",
              maxConcurrency: 4,
              connectTimeoutMs: 5_000,
              firstByteTimeoutMs: 30_000,
              idleTimeoutMs: 30_000,
              maxRetries: 1,
              probeIntervalMs: 60_000,
            },
            options: { contextTokens: 4_096 },
          },
          modelPath: join(folder, "tiny.gguf"),
          access: {
            policy: new UpstreamPolicy([]),
            keyFor: () => Promise.reject(new Error("it needs none")),
            commands: new Map([["llama-server", command()]]),
          },
          sink,
          onExit: () => {},
          onDown: () => {},
          onRecovered: () => {},
          signal: new AbortController().signal,
        }),
      ),
    { minTokens: false, embeddings: false, requiredCalls: false, echo: false },
  );
});

function command() {
  const own = ["--host", "127.0.0.1", "--port", "{port}", "-m", "{model_file}", "-np", "4"];
  const argv = [SERVER, ...own, "-c", "16384", "-t", "1", "--jinja"];
  return { argv, env: { LLAMA_API_KEY: "{api_key}" }, path: "/v1", startTimeoutMs: 60_000 };
}
