import { spawn } from "node:child_process";
import { once } from "node:events";
import { LimitedQueue } from "@heddle/base/async/limited-queue";
import { inOwnTurn } from "../executors/own-turn.ts";

/** The rest of a longer answer is skipped. */
const MAX_OUTPUT_BYTES = 16 * 2 ** 20;
const MAX_ERROR_BYTES = 4 * 1024;
const TIMEOUT_MS = 60_000;
/** Calls at a time, which Slurm's controller answers one by one, and calls that may wait. */
const MAX_CALLS = 4;
const MAX_WAITING = 4_096;

/** A command of Slurm that failed, or that timed out. */
class SlurmError extends Error {}

const calls = new LimitedQueue(
  { running: MAX_CALLS, waiting: MAX_WAITING },
  () => new SlurmError(`${MAX_WAITING} calls of Slurm wait on this worker already`),
);

/** The command's output. Rejects with a SlurmError, with what the command said. */
export function runSlurm(program: string, args: readonly string[], input = ""): Promise<string> {
  return calls.run(() => run(program, args, input));
}

async function run(program: string, args: readonly string[], input: string): Promise<string> {
  const child = await inOwnTurn(async () => {
    const started = spawn(program, args, { stdio: "pipe", timeout: TIMEOUT_MS });
    await once(started, "spawn");
    return started;
  }).catch((cause: Error) => {
    const message = `${program} cannot be run: ${cause.message}. Install Slurm's commands (in Debian: slurm-client)`;
    throw new SlurmError(message, { cause });
  });
  const out = textOf(child.stdout, MAX_OUTPUT_BYTES);
  const words = textOf(child.stderr, MAX_ERROR_BYTES);
  // Its exit status reports a command that ends before it has read its input.
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  const [code, signal] = (await once(child, "close")) as [number | null, string | null];
  if (code === 0) return out();
  const said = words().trim() || `it ended by ${signal ?? `exit code ${code}`}`;
  throw new SlurmError(`${program}: ${said.replaceAll("\n", "; ")}`);
}

function textOf(stream: NodeJS.ReadableStream, maxBytes: number): () => string {
  const pieces: Buffer[] = [];
  let size = 0;
  stream.on("data", (piece: Buffer) => {
    if (size < maxBytes) pieces.push(piece.subarray(0, maxBytes - size));
    size += piece.byteLength;
  });
  return () => Buffer.concat(pieces).toString();
}
