import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { startArguments } from "@heddle/base/testing/programs";
import { issueTicket } from "@heddle/rpc/job-ticket";

const clusterToken = "a-token-for-tests-only";
export const credentials = { clusterToken, node: { role: "worker", name: "trainer" } } as const;
export const asMaster = { clusterToken, node: { role: "master", name: "leader" } } as const;
const PARAMETER_SERVER = startArguments("parameter-server");

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

/** Starts one; its master does not exist, which does not keep it from serving. */
export async function startServer(
  dataDirectory = temporaryFolder(),
  port = 0,
): Promise<ServerProcess> {
  const tokenFile = join(dataDirectory, "token");
  writeFileSync(tokenFile, clusterToken);
  const flags = ["--data", dataDirectory, "--masters", "127.0.0.1:9", "--grpc-port", `${port}`];
  const args = [...PARAMETER_SERVER, ...flags, "--cluster-token-file", tokenFile];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "pipe"] });
  running.add(child);
  let output = "";
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on("line", (line) => {
      output += `${line}\n`;
      const address = /"grpc":"([^"]+)"/.exec(line)?.[1];
      if (address) resolve(address);
    });
  }
  child.once("exit", () => reject(new Error(`a parameter server ended: ${output}`)));
  return {
    address: await promise,
    dataDirectory,
    pid: child.pid ?? 0,
    get isRunning() {
      return !hasEnded(child);
    },
    kill: async () => {
      running.delete(child);
      await killed(child);
    },
  };
}

/** Ends what `startServer` started. */
export async function stopServers(): Promise<void> {
  for (const child of running) await killed(child);
  running.clear();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "heddle-ps-test-"));
  folders.push(folder);
  return folder;
}

/** A ticket as a master issues it, for one attempt of a job on these servers. */
export function ticketOf(
  { jobId = "", attempt = 1 }: { readonly jobId?: string; readonly attempt?: number },
  servers: readonly string[],
): string {
  const issuedUnixMs = Date.now();
  const claims = { jobId, attempt, servers, issuedUnixMs, expiresUnixMs: issuedUnixMs + 3_600_000 };
  return issueTicket({ clusterToken }, claims);
}

export const hasEnded = ({ exitCode, signalCode }: ChildProcess): boolean =>
  exitCode !== null || signalCode !== null;

/** kill -9, and waits for the end. */
export async function killed(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}
