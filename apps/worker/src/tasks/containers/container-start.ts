import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, fstatSync, readSync } from "node:fs";
import { relative } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { openFileBeneathSync } from "@heddle/base/beneath";
import type { TaskLaunch } from "../executors/executor.ts";
import { type OutputCopier, OutputPipes } from "../executors/output-copier.ts";
import { inOwnTurn } from "../executors/own-turn.ts";
import { type ProcessRecord, readProcess } from "../executors/process-tree.ts";
import { CliError, type ContainerCli, lastLine } from "./container-cli.ts";

const START_TIMEOUT_MS = 60_000;
const POLL_MS = 200;
/** The most bytes of an engine's messages that are read. */
const MAX_WORDS_BYTES = 8_192;

interface ContainerStart {
  readonly cli: ContainerCli;
  readonly name: string;
  readonly launch: TaskLaunch;
  /** For the CLI, in addition to this worker's own. */
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Starts a created container that writes to the task's pipes directly, so that no byte is lost with
 * this worker or the CLI. Messages of the CLI in the pipes are removed before the program begins.
 * Rejects with a CliError or a LaunchError.
 */
export async function startByItself(how: ContainerStart, mark: string): Promise<OutputCopier> {
  const { cli, name, environment, launch } = how;
  const { directory } = launch;
  const options = { timeoutMs: START_TIMEOUT_MS, environment, directory };
  const pipes = OutputPipes.open();
  let copier: OutputCopier;
  try {
    const output = pipes.writeEnds;
    await cli.run(["container", "init", name], { ...options, output }).catch((error: CliError) => {
      const said = lastLine(pipes.take()[1] ?? "");
      throw said === "" ? error : new CliError(said, error.code);
    });
    pipes.take();
    copier = await pipes.copyTo(launch, mark);
  } finally {
    pipes.close();
  }
  await cli.run(["start", name], options);
  return copier;
}

/** Starts a created container through a client that carries its output. Rejects with a CliError. */
export async function startWithClient(how: ContainerStart): Promise<ProcessRecord> {
  const { cli, name, launch, environment } = how;
  const client = await attachClient(cli, ["start", "--attach", name], launch, environment);
  const giveUpAtMs = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const isThere = readProcess(client.pid)?.startTime === client.startTime;
    const args = ["inspect", "--type", "container", "--format", "{{.State.Status}}", name];
    const status = await cli.run(args, { timeoutMs: START_TIMEOUT_MS });
    if (!["created", "configured", "initialized"].includes(status)) return client;
    if (!isThere)
      throw new CliError(lastWords(launch) || "its client exited without an error message");
    if (performance.now() > giveUpAtMs) throw new CliError("it did not come to run in time");
    await delay(POLL_MS);
  }
}

/** A client in its own session, so that the streams continue while this worker restarts. */
export async function attachClient(
  cli: ContainerCli,
  args: readonly string[],
  launch: TaskLaunch,
  environment: Readonly<Record<string, string>> = {},
): Promise<ProcessRecord> {
  const files = openStreams(launch);
  const client = await inOwnTurn(async () => {
    const started = spawn(cli.name, [...args], {
      detached: true,
      cwd: launch.directory,
      env: { ...process.env, ...environment },
      stdio: ["ignore", ...files],
    });
    await once(started, "spawn");
    return started;
  }).finally(() => files.forEach(closeSync));
  client.unref();
  const pid = client.pid as number;
  return { pid, startTime: readProcess(pid)?.startTime ?? 0 };
}

function openStreams({ root, stdout, stderr }: TaskLaunch): [stdout: number, stderr: number] {
  const append = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND;
  const open = (path: string) => openFileBeneathSync(root, relative(root, path), append);
  return [open(stdout), open(stderr)];
}

/** The end of the client's messages. */
function lastWords({ root, stderr }: TaskLaunch): string {
  const file = openFileBeneathSync(root, relative(root, stderr));
  try {
    const { size } = fstatSync(file);
    const bytes = Buffer.alloc(Math.min(MAX_WORDS_BYTES, size));
    const length = readSync(file, bytes, 0, bytes.byteLength, size - bytes.byteLength);
    return lastLine(bytes.toString("utf8", 0, length));
  } finally {
    closeSync(file);
  }
}
