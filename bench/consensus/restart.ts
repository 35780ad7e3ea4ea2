import { mkdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { NO_SECRET_KEYS } from "@heddle/base/secret-keys";
import { startIdentity, writeIdentity } from "@heddle/consensus/member/identity";
import { RaftReplica } from "@heddle/consensus/replica/raft-replica";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { Child } from "../support/child-process.ts";
import { repositoryRoot } from "../support/command-line.ts";
import { encodePut, KvMachine } from "./kv-machine.ts";

const keys = 100_000;
const inFlight = 512;
const value = Buffer.alloc(256, "r");
const program = fileURLToPath(new URL("./member.ts", import.meta.url));

/**
 * Fills the log of a single-member group with this many entries and a snapshot half way. Resolves
 * with the time in which a new process recovers them: reads the log, restores, applies the rest.
 */
export async function measureRestart(
  folder: string,
  port: number,
  entries: number,
  logFile: string,
): Promise<number> {
  rmSync(folder, { recursive: true, force: true });
  await fill(folder, port, entries);
  const member = new Child({
    name: "restarted member",
    command: process.execPath,
    args: [program, "1", String(port), folder, String(entries * 10)],
    cwd: repositoryRoot,
    logFile,
  });
  const [, readyMs] = await member.line(/^ready in (\d+) ms/, 120_000);
  await member.stop();
  rmSync(folder, { recursive: true, force: true });
  return Number(readyMs);
}

async function fill(directory: string, port: number, entries: number): Promise<void> {
  mkdirSync(directory, { recursive: true });
  const started = await startIdentity(directory, "m1", { newestVersion: 1 });
  await writeIdentity(directory, { ...started, cluster: "bench", id: 1 }, NO_SECRET_KEYS);
  const replica = await RaftReplica.open<undefined>({
    id: 1,
    incarnation: 1,
    machine: new KvMachine(),
    random: Math.random,
    storage: {
      files: nodeStorageFiles,
      directory,
      owner: { cluster: "bench", node: "1" },
      onDamaged: (error) => console.error(error.message),
    },
    transport: {
      send: () => false,
      sendSnapshot: () => Promise.reject(new Error("a group of one sends nothing")),
      setMembers: () => undefined,
    },
    firstMembers: [{ id: 1, name: "m1", address: `127.0.0.1:${port}`, nonce: "n1" }],
    electionTicks: 14,
    heartbeatTicks: 2,
    requestTicks: 2_000,
    snapshotEntries: entries * 10,
    yieldToLoop: () => new Promise((resolve) => setImmediate(resolve)),
    onFatal: (error) => console.error(error.message),
  });
  const ticks = setInterval(() => replica.tick(), 50);
  let next = 0;
  const propose = async (upTo: number): Promise<void> => {
    while (next < upTo) await replica.propose(encodePut(`key-${next++ % keys}`, value));
  };
  const proposeAll = (upTo: number) =>
    Promise.all(Array.from({ length: inFlight }, () => propose(upTo)));
  await proposeAll(entries / 2);
  await replica.takeSnapshot();
  await proposeAll(entries);
  clearInterval(ticks);
  await replica.stop();
}
