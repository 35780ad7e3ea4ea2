import { runNode } from "@heddle/node-agent/run-node";
import { createLogger } from "@heddle/observability/logger";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { startWorker } from "../dist/worker.js";
import { scriptedPorts } from "./scripted-ports.ts";

/**
 * A whole worker process for tests, with the scripted engine in place of a model. Its one argument
 * is JSON: dataDirectory, masters, clusterToken, name.
 */
const settings = JSON.parse(process.argv[2] ?? "{}");
const { plugins = [] } = settings;
const log = createLogger({ service: "worker", level: "info" });

await runNode(
  async () =>
    startWorker(
      {
        grpcHost: "127.0.0.1",
        grpcPort: 0,
        version: "test",
        engineDefaults: {},
        labels: {},
        taints: [],
        rack: "",
        fabric: "",
        ...settings,
      },
      scriptedPorts,
      log,
      await PluginSet.start(plugins, process.cwd(), log, "worker"),
    ),
  log,
);
