import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import { setPriority } from "node:os";
import { extname } from "node:path";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { residentBytesOf } from "@heddle/base/process/resident-bytes";
import { LoadFault, type PluginFaultKind } from "../loading/load-fault.ts";
import type { HostedEntry } from "../loading/plugin-list.ts";
import { ownCodePaths } from "../loading/plugin-source.ts";
import type { PluginHostKind } from "../plugin.ts";
import { childFlags, pluginEnvironment } from "./child-flags.ts";
import { describedAs, type PluginDescription } from "./description.ts";
import { MessageSocket } from "./message-socket.ts";
import { type FromPlugin, MESSAGES_FD, type ToPlugin } from "./messages.ts";

const PROGRAM = fileURLToPath(
  new URL(`./plugin-host-main${extname(import.meta.url)}`, import.meta.url),
);
/** Its module and its setup have 10 s each. */
const START_MS = 25_000;
/** How often the memory of a process is read while it loads. */
const POLL_MS = 250;
const NICENESS = 5;
const PART_CHARACTERS = 80;
const LINE_CHARACTERS = 2_000;
/** Lines of its output that are logged in a second; the rest is dropped. */
const LINES_PER_SECOND = 50;

/** Characters of its output that are read in a second; a process that prints more waits. */
const OUTPUT_PER_SECOND = 2 ** 20;

/** What such a process has written is not for this one. */
export const NO_MESSAGE = "what it wrote to the descriptor of its messages is none";

export interface PluginStartOptions {
  readonly entry: HostedEntry;
  readonly kind: PluginHostKind;
  log(line: string): void;
}

/** A process that was started, and its output. */
interface Started {
  readonly child: ChildProcess;
  readonly messages: MessageSocket<FromPlugin, ToPlugin>;
  readonly errors: ErrorOutput;
}

/** A process that has loaded its plugin. */
export interface LoadedProcess extends Started {
  readonly description: PluginDescription;
}

/** Starts a process and has it load the plugin. Rejects with the reason of a refusal. */
export async function startPlugin(options: PluginStartOptions): Promise<LoadedProcess> {
  const { entry, log } = options;
  const child = spawn(process.execPath, [...childFlags(entry, ownCodePaths(entry)), PROGRAM], {
    env: pluginEnvironment(process.env),
    stdio: ["ignore", "pipe", "pipe", "pipe"],
  });
  yieldTo(child);
  const errors = new ErrorOutput();
  logLines(child.stdout, log);
  logLines(child.stderr, (line) => {
    errors.read(line);
    log(line);
  });
  const messages = new MessageSocket<FromPlugin, ToPlugin>(child.stdio[MESSAGES_FD] as Socket);
  const started = { child, messages, errors };
  try {
    return { ...started, description: await load(started, options) };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

/** A plugin that computes without end leaves the processors to its parent. */
function yieldTo({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    setPriority(pid, NICENESS);
  } catch {
    // It has ended, or this system has no priorities.
  }
}

/** What a process writes to its standard error says why it ended. */
class ErrorOutput {
  lastLine = "";
  #isMemory = false;

  read(line: string): void {
    if (line.trim() !== "") this.lastLine = line.trim();
    // Node's words for a full heap, before it aborts.
    if (/out of memory/i.test(line)) this.#isMemory = true;
  }

  exitOf(code: number | null, signal: string | null): { kind: PluginFaultKind; reason: string } {
    if (this.#isMemory) return { kind: "memory", reason: "its process had no memory left" };
    const how = signal === null ? `the exit code ${code}` : `the signal ${signal}`;
    return { kind: "exited", reason: `its process ended with ${how}` };
  }
}

/** What the loaded plugin says of itself. */
function load(
  { child, messages, errors }: Started,
  { entry, kind }: PluginStartOptions,
): Promise<PluginDescription> {
  return new Promise((resolve, reject) => {
    let part = "its process";
    const startedMs = performance.now();
    const settle = (finish: () => void) => {
      clearInterval(poll);
      child.off("exit", onExit).off("error", onError);
      finish();
    };
    const fail = (reason: string, fault?: PluginFaultKind) =>
      settle(() => reject(fault ? new LoadFault(fault, reason) : new Error(reason)));
    messages.onFault = ({ message }) => fail(`${NO_MESSAGE}: ${message}`, "exited");
    messages.onMessage = (message) => {
      if (message?.type === "loading") part = String(message.part).slice(0, PART_CHARACTERS);
      else if (message?.type === "refused") {
        const isKnown = message.fault === "threw" || message.fault === "late";
        fail(String(message.reason).slice(0, LINE_CHARACTERS), isKnown ? message.fault : undefined);
      } else if (message?.type === "loaded") {
        try {
          const description = describedAs(message.description);
          settle(() => resolve(description));
        } catch (error) {
          const why = (error as Error).message.slice(0, LINE_CHARACTERS);
          fail(`it describes itself wrongly: ${why}`);
        }
      }
    };
    const onExit = (code: number | null, signal: string | null) => {
      const { kind: fault, reason } = errors.exitOf(code, signal);
      const last = errors.lastLine;
      fail(`while it loaded, ${reason}${last && `; its last line: ${last}`}`, fault);
    };
    const onError = (error: Error) => fail(error.message);
    const poll = setInterval(() => {
      const excess = memoryExcess(residentBytesOf(child.pid), entry);
      if (excess !== undefined) fail(`while it loaded, ${excess}`, "memory");
      if (performance.now() - startedMs < START_MS) return;
      fail(`it did not load within ${START_MS} ms: ${part} has not ended`, "late");
    }, POLL_MS);
    child.once("exit", onExit).once("error", onError);
    messages.send({ type: "load", entry, kind });
  });
}

/** Undefined where the process has as much memory as it may. */
export function memoryExcess(bytes: number, { memoryMib }: HostedEntry): string | undefined {
  if (bytes <= memoryMib * 2 ** 20) return undefined;
  return `its process has ${Math.ceil(bytes / 2 ** 20)} MiB, more than ${memoryMib}`;
}

/** Its output as lines of the log, at a bounded rate and length. */
function logLines(stream: Readable | null, log: (line: string) => void): void {
  if (!stream) return;
  let second = 0;
  let lines = 0;
  let characters = 0;
  let rest = "";
  const show = (line: string) => {
    lines++;
    if (lines <= LINES_PER_SECOND) log(line.slice(0, LINE_CHARACTERS));
    else if (lines === LINES_PER_SECOND + 1) log("more output in this second is not shown");
  };
  stream.setEncoding("utf8").on("data", (text: string) => {
    const now = Math.floor(performance.now() / 1_000);
    if (now !== second) [second, lines, characters] = [now, 0, 0];
    const [first = "", ...more] = text.split("\n");
    rest = (rest + first).slice(0, LINE_CHARACTERS);
    for (const line of more) {
      show(rest);
      rest = line.slice(0, LINE_CHARACTERS);
    }
    characters += text.length;
    if (characters < OUTPUT_PER_SECOND) return;
    stream.pause();
    setTimeout(() => stream.resume(), 1_000).unref();
  });
}
