import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import { jsonLog } from "@heddle/rpc/node/log";
import { runNode } from "@heddle/rpc/node/run-node";
import { startWorker } from "../dist/worker.js";
import type { EnginePorts } from "../src/engine-ports.ts";
import { ScriptedEngine } from "./scripted-engine.ts";

/**
 * A whole worker process for tests, with the scripted engine in place of a model. Its one argument
 * is JSON: dataDirectory, masters, clusterToken, name, and the engine's defaults. A deployment whose
 * weights' key starts with "missing" cannot be pulled; "slow-<ms>" takes that long to load.
 */
const settings = JSON.parse(process.argv[2] ?? "{}");

const ports: EnginePorts = {
  startEngine: async ({ spec, sink, onExit }) => {
    const slow = /^slow-(\d+)/.exec(spec.weights.key);
    if (slow) await delay(Number(slow[1]));
    return new ScriptedEngine(spec.options, sink, onExit);
  },
  pullWeights: async (weights, { onProgress }) => {
    if (weights.key.startsWith("missing")) {
      throw new AppError("not_found", `no source has ${weights.key}`);
    }
    onProgress({ pulledBytes: 5, totalBytes: 10, source: "builtin://" });
    await delay(Number(/pull-(\d+)/.exec(weights.key)?.[1] ?? 0));
    onProgress({ pulledBytes: 10, totalBytes: 10, source: "builtin://" });
    return `/${weights.file}`;
  },
};

const log = jsonLog("worker");
await runNode(
  () =>
    startWorker(
      { grpcHost: "127.0.0.1", grpcPort: 0, version: "test", engineDefaults: {}, ...settings },
      ports,
      log,
    ),
  log,
);
