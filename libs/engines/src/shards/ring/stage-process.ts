import { type ChildProcess, fork } from "node:child_process";
import { basename, extname } from "node:path";
import type { Duplex } from "node:stream";
import { fileURLToPath } from "node:url";
import { AppError } from "@heddle/base/errors";
import { withHugePages } from "../../llama/native/huge-pages.ts";
import { STAGE_FD, type StageMessage, type StageStart } from "./stage-protocol.ts";

/** Characters of the process's error output that are kept for its failure message. */
const MAX_ERROR_OUTPUT = 2_000;
/** Its objects are few: room for more, as this process may have asked for, would be for garbage. */
const HEAP_FLAGS = ["--max-semi-space-size=1", "--max-old-space-size=128"];

/** A stage that is not the last, in a process of its own. */
export interface StageProcess {
  readonly pid: number | undefined;
  /** What it computes on, as people know it. */
  readonly device: string;
  /** Takes the frames of the stage before, and gives those for the stage after. */
  readonly frames: Duplex;
  /** Resolves with the reason when the process is gone. */
  readonly ended: Promise<AppError>;
  /** Ends it at once, for the reason if there is one. */
  close(reason?: AppError): Promise<void>;
}

/**
 * Loads a shard in a process of its own. Resolves when it can decode; rejects with an AppError that
 * says why it cannot, also when the signal aborts, and nothing is left running then.
 */
export async function startStage(start: StageStart, signal?: AbortSignal): Promise<StageProcess> {
  const name = basename(start.path);
  const child = spawn(signal);
  let fatal: AppError | undefined;
  const ended = endOf(child, start.path).then((how) => fatal ?? how);
  child.send(start, () => undefined);
  const ready = new Promise<StageMessage>((resolve) => child.once("message", resolve));
  const said = await Promise.race([ready, ended]);
  if (said instanceof AppError) {
    if (signal?.aborted) throw new AppError("cancelled", `the loading of ${name} was cancelled`);
    throw said;
  }
  if (said.kind === "failed") {
    await ended;
    throw new AppError(said.code as AppError["code"], said.message);
  }
  const streams: readonly unknown[] = child.stdio;
  const frames = streams[STAGE_FD] as Duplex;
  // It breaks when the process ends, which `ended` reports.
  frames.on("error", () => undefined);
  return {
    pid: child.pid,
    device: said.device,
    frames,
    ended,
    close: async (reason) => {
      fatal ??= reason;
      child.kill("SIGKILL");
      await ended;
    },
  };
}

function spawn(signal: AbortSignal | undefined): ChildProcess {
  const url = new URL(`./stage-main${extname(import.meta.url)}`, import.meta.url);
  return fork(fileURLToPath(url), {
    serialization: "advanced",
    execArgv: HEAP_FLAGS,
    env: withHugePages(process.env),
    stdio: ["ignore", "ignore", "pipe", "ipc", "pipe"],
    signal,
    killSignal: "SIGKILL",
  });
}

function endOf(child: ChildProcess, path: string): Promise<AppError> {
  let output = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    output = (output + text).slice(-MAX_ERROR_OUTPUT);
  });
  return new Promise((resolve) => {
    const end = (how: string) => {
      const wrote = output.trim().replaceAll(path, basename(path)).replaceAll("\n", " | ");
      const tail = wrote === "" ? "" : `; it wrote: ${wrote}`;
      const message = `the process of the stage ${basename(path)} ended ${how}${tail}`;
      resolve(new AppError("engine_failed", message));
    };
    child.once("error", ({ message }) => end(`at its start: ${message}`));
    child.once("close", (code, by) => end(by === null ? `with code ${code}` : `by ${by}`));
  });
}
