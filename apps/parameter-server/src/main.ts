import { readFileSync } from "node:fs";
import { exitWithParent } from "@heddle/base/process/exit-with-parent";
import { registerSecretPaths } from "@heddle/base/secret-paths";
import { nodeUsage, readNodeFlags } from "@heddle/node-agent/node-flags";
import { runNode } from "@heddle/node-agent/run-node";
import { withMetrics } from "@heddle/node-agent/with-metrics";
import { createLogger, logLevelOf } from "@heddle/observability/logger";
import { startParameterServer } from "./parameter-server.ts";

const log = createLogger({ service: "parameter-server", level: logLevelOf(process.env) });
const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");

if (process.argv.includes("--help")) {
  process.stdout.write(nodeUsage("heddle-parameter-server"));
} else {
  exitWithParent();
  await runNode(async () => {
    const { flags, metrics } = readNodeFlags(process.argv.slice(2));
    registerSecretPaths(flags.secretPaths ?? [], (message) => log.warn({}, message));
    const version = String(JSON.parse(manifest).version);
    return withMetrics("parameter-server", await startParameterServer(flags, version, log), {
      ...metrics,
      log,
    });
  }, log);
}
