import { fork } from "node:child_process";
import { extname } from "node:path";
import { type Duplex, Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { AppError } from "@heddle/base/errors";
import { withHugePages } from "../native/huge-pages.ts";
import {
  type ChildMessage,
  EVENTS_FD,
  type ParentMessage,
  STAGES_FD,
} from "../protocol/child-protocol.ts";
import type { EngineLink, EngineLinkListener } from "./engine-link.ts";

/**
 * V8's bounds for each thread of the process, MiB, which do not count native memory. Without them
 * garbage of many requests piles up before V8 searches the old generation, and the process seems to
 * leak.
 */
const HEAP_FLAGS = [
  "--min-semi-space-size=8",
  "--max-semi-space-size=8",
  "--max-old-space-size=512",
];

/** An engine process as a child of this one. */
export function forkEngine(listener: EngineLinkListener, hasStages: boolean): EngineLink {
  const url = new URL(`../process/engine-process${extname(import.meta.url)}`, import.meta.url);
  const child = fork(fileURLToPath(url), {
    serialization: "advanced",
    execArgv: HEAP_FLAGS,
    env: withHugePages(process.env),
    stdio: ["ignore", "ignore", "pipe", "ipc", "pipe", hasStages ? "pipe" : "ignore"],
  });
  const streams: readonly unknown[] = child.stdio;
  // Absent where the process could not be made.
  const events = (streams[EVENTS_FD] as Readable | null | undefined) ?? Readable.from([]);
  // A pipe breaks when its process ends, which `close` reports.
  events.on("error", () => undefined);
  const stages = (streams[STAGES_FD] as Duplex | null | undefined) ?? undefined;
  // It may be paused, and `close` would wait until all of it is read.
  child.once("exit", () => stages?.destroy());
  child.stderr?.setEncoding("utf8").on("data", (text: string) => listener.errorOutput(text));
  child.on("message", (message) => listener.message(message as ChildMessage));
  child.on("error", ({ message }) => {
    listener.failed(new AppError("engine_failed", `the engine process failed: ${message}`));
  });
  child.on("close", (code, signal) => {
    listener.ended(signal === null ? `with exit code ${code}` : `by signal ${signal}`);
  });
  return {
    pid: child.pid,
    events,
    stages,
    send: (message: ParentMessage) => {
      if (child.connected) child.send(message, () => undefined);
    },
    kill: () => void child.kill("SIGKILL"),
  };
}
