import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "@heddle/base/testing/free-ports";
import { Child } from "../support/child-process.ts";
import { benchFolder } from "../support/command-line.ts";
import { originOf, waitForServer } from "../support/origin.ts";
import type { GatewayCores, GatewayUnderTest } from "./gateway-under-test.ts";

const release = "@portkey-ai/gateway@1.15.2";
const folder = join(benchFolder, "portkey");
const program = join(folder, "node_modules/@portkey-ai/gateway/build/start-server.js");

/** The peer in front of a mock upstream; undefined, with a logged reason, if it is missing. */
export async function startPortkey(
  mockUrl: string,
  cores: GatewayCores,
): Promise<GatewayUnderTest | undefined> {
  if (!existsSync(program) && !install()) return undefined;
  const port = await freePort();
  const child = new Child({
    name: "Portkey",
    command: process.execPath,
    args: ["--import", local("./portkey-preload.mjs"), program, "--headless", `--port=${port}`],
    env: { NODE_ENV: "production" },
    core: cores.gateway,
    logFile: join(benchFolder, "logs/portkey.log"),
  });
  const url = `http://127.0.0.1:${port}`;
  await waitForServer(`${url}/`, 30_000);
  return {
    name: "Portkey 1.15.2",
    processes: [{ pid: child.pid, role: "gateway" }],
    origin: originOf(url),
    path: "/v1/chat/completions",
    headers: {
      authorization: "Bearer none",
      "x-portkey-provider": "openai",
      "x-portkey-custom-host": `${mockUrl}/v1`,
    },
  };
}

function install(): boolean {
  console.log(`Installing ${release} into ${folder} (25 MB) ...`);
  const { status } = spawnSync("npm", ["install", "--prefix", folder, release], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (status === 0 && existsSync(program)) return true;
  console.log(`SKIPPED: ${release} could not be installed; only our own figures follow.`);
  return false;
}

function local(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}
