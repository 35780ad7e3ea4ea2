import { jsonLog } from "@heddle/rpc/node/log";
import { runNode } from "@heddle/rpc/node/run-node";
import { startWorker } from "../dist/worker.js";
import { scriptedPorts } from "./scripted-ports.ts";

/**
 * A whole worker process for tests, with the scripted engine in place of a model. Its one argument
 * is JSON: dataDirectory, masters, clusterToken, name.
 */
const settings = JSON.parse(process.argv[2] ?? "{}");
const log = jsonLog("worker");

await runNode(
  () =>
    startWorker(
      {
        ...{ grpcHost: "127.0.0.1", grpcPort: 0, version: "test", engineDefaults: {} },
        ...{ labels: {}, taints: [], rack: "", fabric: "" },
        ...settings,
      },
      scriptedPorts,
      log,
    ),
  log,
);
