import { readFileSync } from "node:fs";
import { join } from "node:path";
import { exitWithParent } from "@heddle/base/exit-with-parent";
import type { EngineOptions } from "@heddle/contracts/engine";
import { jsonLog } from "@heddle/rpc/node/log";
import { readNodeFlags, wholeNumber } from "@heddle/rpc/node/node-flags";
import { runNode } from "@heddle/rpc/node/run-node";
import { llamaPorts } from "./llama-ports.ts";
import { OFFER_FLAGS, readOffer } from "./offer-flags.ts";
import { startWorker } from "./worker.ts";

/** The worker's own flags: the weights' cache and hosts, and what engines get by default. */
const workerFlags = [
  "models-cache",
  "weights-hosts",
  "threads",
  "context",
  "max-sequences",
  "device",
  "gpu-layers",
  ...OFFER_FLAGS,
] as const;

const log = jsonLog("worker");
const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");

exitWithParent();
await runNode(async () => {
  const { flags, extra } = readNodeFlags(process.argv.slice(2), workerFlags);
  const ports = llamaPorts({
    cacheDirectory: extra["models-cache"] ?? join(flags.dataDirectory, "models"),
    allowedHosts: (extra["weights-hosts"] ?? "").split(",").filter((host) => host !== ""),
  });
  const version = String(JSON.parse(manifest).version);
  const engines = engineDefaults(extra);
  const options = { ...flags, ...readOffer(extra), version, engineDefaults: engines };
  return startWorker(options, ports, log);
}, log);

function engineDefaults(flags: Readonly<Record<string, string | undefined>>): EngineOptions {
  const number = (flag: (typeof workerFlags)[number], max: number) =>
    wholeNumber(flag, flags[flag], 1, max);
  return {
    threads: number("threads", 1_024),
    contextTokens: number("context", 16_777_216),
    maxSequences: number("max-sequences", 4_096),
    gpuLayers: number("gpu-layers", 10_000),
    device: flags["device"],
  };
}
