import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { exitWithParent } from "@heddle/base/process/exit-with-parent";
import { registerSecretPaths } from "@heddle/base/secret-paths";
import type { EngineOptions } from "@heddle/contracts/engine";
import {
  type FlagHelp,
  nodeUsage,
  readNodeFlags,
  wholeNumber,
} from "@heddle/node-agent/node-flags";
import { OFFER_FLAGS, readDevice, readOffer } from "@heddle/node-agent/offer-flags";
import { runNode } from "@heddle/node-agent/run-node";
import { withMetrics } from "@heddle/node-agent/with-metrics";
import { createLogger, logLevelOf } from "@heddle/observability/logger";
import { readOtlpMetrics, readOtlpSettings } from "@heddle/observability/tracing/otlp-settings";
import { startTracing, stopTracing } from "@heddle/observability/tracing/tracing";
import { exposePluginMetrics } from "@heddle/plugin-kit/host/plugin-metrics";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { Registry } from "prom-client";
import { pullAccess } from "./artifacts/object-source.ts";
import { POD_FLAGS, readPodSettings } from "./config/pod-settings.ts";
import { readSlurmSettings, SLURM_FLAGS } from "./config/slurm-settings.ts";
import { llamaPorts } from "./inference/llama-ports.ts";
import { pluginEngines } from "./inference/plugin-engines.ts";
import { readUpstreams } from "./inference/upstream-config.ts";
import { withUpstreams } from "./inference/upstream-ports.ts";
import { startWorker } from "./worker.ts";

/** The worker's own flags: the cache and hosts of weights, and the engines' defaults. */
const workerFlags = {
  "models-cache": ["DIR", "cache of model weights (default: in the data directory)"],
  "weights-hosts": ["HOST,...", "further allowed hosts and s3://BUCKET/PREFIX for weights"],
  upstreams: ["FILE", "JSON file: servers that models may name, their keys, and commands"],
  threads: ["N", "CPU threads per engine"],
  context: ["TOKENS", "context length per sequence"],
  "max-sequences": ["N", "maximum concurrent sequences per engine"],
  device: ["DEVICE", "device of the engines: cpu or a GPU index"],
  "gpu-layers": ["N", "layers to offload to the GPU"],
  "otlp-endpoint": [
    "URL",
    "base URL of an OTLP receiver (HTTP) for traces and metrics; or the OTEL_* names",
  ],
  ...OFFER_FLAGS,
  ...POD_FLAGS,
  ...SLURM_FLAGS,
} as const satisfies Record<string, FlagHelp>;

const log = createLogger({ service: "worker", level: logLevelOf(process.env) });
const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");

if (process.argv.includes("--help")) {
  process.stdout.write(nodeUsage("heddle-worker", workerFlags));
} else {
  exitWithParent();
  await runNode(start, log);
}

async function start() {
  const { flags, metrics, extra } = readNodeFlags(process.argv.slice(2), Object.keys(workerFlags));
  const upstreams = readUpstreams(extra["upstreams"]);
  const weightsHosts = (extra["weights-hosts"] ?? "").split(",").filter((host) => host !== "");
  const llama = llamaPorts({
    cacheDirectory: resolve(extra["models-cache"] ?? join(flags.dataDirectory, "models")),
    ...pullAccess(weightsHosts),
  });
  const offer = readOffer(extra);
  const plugins = await PluginSet.start(offer.plugins ?? [], process.cwd(), log, "worker");
  // Commands of the administrator's file override those of plugins.
  const commands = new Map([...pluginEngines(plugins), ...upstreams.commands]);
  const ports = withUpstreams(llama, { ...upstreams, commands });
  const version = String(JSON.parse(manifest).version);
  const { keyFiles } = upstreams;
  const secretPaths = [...(flags.secretPaths ?? []), ...credentialFiles(), ...keyFiles];
  registerSecretPaths(secretPaths, (message) => log.warn({}, message));
  const pods = readPodSettings(extra);
  const slurm = readSlurmSettings(extra);
  const own = { secretPaths, version, engineDefaults: engineDefaults(extra), weightsHosts };
  const options = { ...flags, ...offer, pods, slurm, ...own };
  const service = { service: "heddle-worker", instance: flags.name ?? "" };
  const asked = { endpoint: extra["otlp-endpoint"], ...service };
  await startTracing(readOtlpSettings(asked, process.env));
  const otlp = readOtlpMetrics(asked, process.env);
  const worker = await startWorker(options, ports, log, plugins);
  const expose = (registry: Registry) => exposePluginMetrics(registry, plugins);
  const node = await withMetrics("worker", worker, { ...metrics, otlp, log, expose });
  const close = async (drainMs: number) => {
    await node.close(drainMs).finally(stopTracing);
    plugins.close();
  };
  return { ...node, close };
}

/** Files with keys of other services, which the environment names. */
function credentialFiles(): string[] {
  const file = process.env["AWS_SHARED_CREDENTIALS_FILE"];
  return file ? [resolve(file)] : [];
}

function engineDefaults(flags: Readonly<Record<string, string | undefined>>): EngineOptions {
  const number = (flag: keyof typeof workerFlags, max: number) =>
    wholeNumber(flag, flags[flag], 1, max);
  return {
    threads: number("threads", 1_024),
    contextTokens: number("context", 16_777_216),
    maxSequences: number("max-sequences", 4_096),
    gpuLayers: number("gpu-layers", 10_000),
    device: readDevice(flags["device"]),
  };
}
