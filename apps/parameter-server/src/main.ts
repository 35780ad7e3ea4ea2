import { readFileSync } from "node:fs";
import { exitWithParent } from "@heddle/base/exit-with-parent";
import { registerSecretPaths } from "@heddle/base/secret-paths";
import { jsonLog } from "@heddle/rpc/node/log";
import { nodeUsage, readNodeFlags } from "@heddle/rpc/node/node-flags";
import { runNode } from "@heddle/rpc/node/run-node";
import { startParameterServer } from "./parameter-server.ts";

const log = jsonLog("parameter-server");
const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");

if (process.argv.includes("--help")) {
  process.stdout.write(nodeUsage("heddle-parameter-server"));
} else {
  exitWithParent();
  await runNode(async () => {
    const { flags } = readNodeFlags(process.argv.slice(2));
    registerSecretPaths(flags.secretPaths ?? [], (message) => log.warn({}, message));
    return startParameterServer(flags, String(JSON.parse(manifest).version), log);
  }, log);
}
