import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import type { EnginePorts } from "../src/inference/engine-ports.ts";
import { ScriptedEngine } from "./scripted-engine.ts";

/**
 * Ports of the scripted engine, controlled by the key of a deployment's weights.
 * - "missing...": cannot be pulled; "unreachable...": cannot be pulled now.
 * - "slow-<ms>": takes that long to load; "pull-<ms>": takes that long to pull.
 */
export const scriptedPorts: EnginePorts = {
  startEngine: async ({ spec, sink, onExit }) => {
    const slow = /^slow-(\d+)/.exec(spec.weights?.key ?? "");
    if (slow) await delay(Number(slow[1]));
    return new ScriptedEngine(spec.options, sink, onExit);
  },
  pullWeights: async (weights, { onProgress }) => {
    if (weights.key.startsWith("missing")) {
      throw new AppError("not_found", `no source has ${weights.key}`);
    }
    if (weights.key.startsWith("unreachable")) {
      throw new AppError("unavailable", `no source of ${weights.key} is reached`);
    }
    onProgress({ pulledBytes: 5, totalBytes: 10, source: "builtin://" });
    await delay(Number(/pull-(\d+)/.exec(weights.key)?.[1] ?? 0));
    onProgress({ pulledBytes: 10, totalBytes: 10, source: "builtin://" });
    return `/${weights.file}`;
  },
};
