import { createLogger } from "@heddle/observability/logger";
import { startWorker } from "../../apps/worker/dist/worker.js";
import { MockEngine } from "./mock-engine.ts";

// A worker to the cluster (with the product's registration, heartbeats and sessions), with the mock
// engine instead of a model.
// usage: node mock-worker.ts '{"masters":["HOST:PORT"],"clusterToken":"...","dataDirectory":"..."}'

const settings = JSON.parse(process.argv[2] ?? "{}") as {
  readonly masters: readonly string[];
  readonly clusterToken: string;
  readonly dataDirectory: string;
};

const worker = await startWorker(
  {
    ...settings,
    name: "mock",
    grpcHost: "127.0.0.1",
    grpcPort: 0,
    advertise: undefined,
    version: "bench",
    engineDefaults: {},
    labels: {},
    taints: [],
    rack: "",
    fabric: "",
  },
  {
    startEngine: async ({ sink }) => new MockEngine(sink),
    pullWeights: async (weights) => `/${weights.file}`,
  },
  createLogger({ service: "mock-worker", level: "info" }),
);
process.once("SIGTERM", () => void worker.close(1_000).then(() => process.exit(0)));
