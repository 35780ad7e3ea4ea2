import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createApiKey } from "@heddle/auth/api-key";
import { freePort } from "@heddle/base/testing/free-ports";
import { nodeFlags } from "../../apps/cli/src/up/node-flags.ts";
import { Child } from "../support/child-process.ts";
import { benchFolder, repositoryRoot } from "../support/command-line.ts";
import { HeddleApi } from "../support/heddle-api.ts";
import { originOf, waitForServer } from "../support/origin.ts";
import type { GatewayCores, GatewayUnderTest } from "./gateway-under-test.ts";
import { mockModel } from "./mock-answer.ts";

interface MasterOptions {
  readonly core: number;
  /** For Node. */
  readonly nodeFlags?: readonly string[];
  readonly flags?: readonly string[];
}

/** A master as `heddle up` runs it, on one core. */
export async function startPinnedMaster({ core, nodeFlags: more = [], flags = [] }: MasterOptions) {
  mkdirSync(join(benchFolder, "data"), { recursive: true });
  const data = mkdtempSync(join(benchFolder, "data/gateway-"));
  const secrets = writeSecrets(data);
  const [http, grpc] = [await freePort(), await freePort()];
  const master = new Child({
    name: "master",
    command: process.execPath,
    args: [
      ...nodeFlags("master", totalmem()),
      ...more,
      join(repositoryRoot, "apps/master/dist/main.js"),
      "--data",
      join(data, "master"),
      "--http-host",
      "127.0.0.1",
      "--http-port",
      String(http),
      "--grpc-host",
      "127.0.0.1",
      "--grpc-port",
      String(grpc),
      "--cluster-token-file",
      secrets.clusterTokenFile,
      "--bootstrap-key-file",
      secrets.bootstrapKeyFile,
      "--profile",
      "tiny",
      ...flags,
    ],
    core,
    cwd: data,
    logFile: join(benchFolder, "logs/master.log"),
  });
  const url = `http://127.0.0.1:${http}`;
  await waitForServer(`${url}/api/v1/models`, 30_000);
  return { pid: master.pid, url, grpc: `127.0.0.1:${grpc}`, data, secrets };
}

/** A master on the gateways' core and a mock worker on the other, attached over gRPC. */
export async function startHeddle(
  cores: GatewayCores,
  nodeFlags: readonly string[] = [],
): Promise<GatewayUnderTest> {
  const { pid, url, grpc, data, secrets } = await startPinnedMaster({
    core: cores.gateway,
    nodeFlags,
  });
  const settings = {
    masters: [grpc],
    clusterToken: secrets.clusterToken,
    dataDirectory: join(data, "worker"),
  };
  new Child({
    name: "mock worker",
    command: process.execPath,
    args: [fileURLToPath(new URL("./mock-worker.ts", import.meta.url)), JSON.stringify(settings)],
    core: cores.rest,
    logFile: join(benchFolder, "logs/mock-worker.log"),
  });
  const api = new HeddleApi(url, secrets.apiKey);
  await api.serve({ id: mockModel, source: "builtin://tiny" }, 30_000);
  const key = await api.createLimitedKey();
  return {
    name: "Heddle",
    processes: [{ pid, role: "master" }],
    origin: originOf(url),
    path: "/api/v1/chat/completions",
    headers: { authorization: `Bearer ${key}` },
  };
}

function writeSecrets(data: string) {
  const clusterToken = randomBytes(32).toString("base64url");
  const apiKey = createApiKey("local").text;
  const clusterTokenFile = join(data, "cluster-token");
  const bootstrapKeyFile = join(data, "bootstrap-key");
  writeFileSync(clusterTokenFile, `${clusterToken}\n`, { mode: 0o600 });
  writeFileSync(bootstrapKeyFile, `${apiKey}\n`, { mode: 0o600 });
  return { clusterToken, apiKey, clusterTokenFile, bootstrapKeyFile };
}
