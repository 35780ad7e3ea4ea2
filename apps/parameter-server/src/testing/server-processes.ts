import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const clusterToken = "the token of these tests";
export const credentials = { clusterToken, node: { role: "worker", name: "trainer" } } as const;
export const asMaster = { clusterToken, node: { role: "master", name: "leader" } } as const;
const main = fileURLToPath(new URL("../../dist/main.js", import.meta.url));

/** A parameter server as a process of its own. */
export interface ServerProcess {
  /** host:port of its gRPC. */
  readonly address: string;
  readonly dataDirectory: string;
  readonly pid: number;
  readonly isRunning: boolean;
  /** kill -9 */
  kill(): Promise<void>;
}

const running = new Set<ChildProcess>();
const folders: string[] = [];

/** Starts one; its master is one that is not there, which does not keep it from serving. */
export async function startServer(dataDirectory = temporaryFolder()): Promise<ServerProcess> {
  const tokenFile = join(dataDirectory, "token");
  writeFileSync(tokenFile, credentials.clusterToken);
  const flags = ["--data", dataDirectory, "--masters", "127.0.0.1:9"];
  const args = [main, ...flags, "--cluster-token-file", tokenFile];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "pipe"] });
  running.add(child);
  let told = "";
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on("line", (line) => {
      told += `${line}\n`;
      const address = /"grpc":"([^"]+)"/.exec(line)?.[1];
      if (address) resolve(address);
    });
  }
  child.once("exit", () => reject(new Error(`a parameter server ended: ${told}`)));
  return {
    address: await promise,
    dataDirectory,
    pid: child.pid ?? 0,
    get isRunning() {
      return running.has(child);
    },
    kill: async () => {
      running.delete(child);
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}

/** Ends what `startServer` started. */
export async function stopServers(): Promise<void> {
  for (const child of running) {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  }
  running.clear();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "heddle-ps-test-"));
  folders.push(folder);
  return folder;
}
