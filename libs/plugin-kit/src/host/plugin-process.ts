import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import { setPriority } from "node:os";
import { extname } from "node:path";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { Channel } from "@heddle/base/channel";
import { AppError } from "@heddle/base/errors";
import type { HostedEntry } from "../loading/plugin-list.ts";
import type { PluginHostKind } from "../plugin.ts";
import { type PluginBackend, PluginFault, type PluginFaultKind } from "./backend.ts";
import type { CallLimit } from "./call-limit.ts";
import { childFlags, pluginEnvironment } from "./child-flags.ts";
import { type PluginDescription, pluginDescription } from "./description.ts";
import { MessageSocket } from "./message-socket.ts";
import { type FromPlugin, MESSAGES_FD, type ToPlugin } from "./messages.ts";
import { type CallError, callRefusal, type PluginCall, type RouteCall } from "./plugin-calls.ts";

const PROGRAM = fileURLToPath(
  new URL(`./plugin-host-main${extname(import.meta.url)}`, import.meta.url),
);
/** Its module and its setup have 10 s each. */
const START_MS = 25_000;
const PING_MS = 1_000;
/** Pings without an answer after which its loop counts as blocked. */
const MISSED_PINGS = 5;
const NICENESS = 5;
const NO_MESSAGE = "what it wrote to the descriptor of its messages is none";
/** Events of a stream on their way. */
const CREDITS = 32;
const LINE_CHARACTERS = 2_000;
/** Lines of its output that are logged in a second; the rest is dropped. */
const LINES_PER_SECOND = 50;

export interface PluginProcessOptions {
  readonly entry: HostedEntry;
  readonly kind: PluginHostKind;
  /** How often the process is asked whether it answers. */
  readonly pingMs: number | undefined;
  log(line: string): void;
  /** Called once, when the process has ended other than by `close`. */
  onEnd(kind: PluginFaultKind, reason: string): void;
}

type Messages = MessageSocket<FromPlugin, ToPlugin>;

/** A process that was started, and its output. */
interface Started {
  readonly child: ChildProcess;
  readonly messages: Messages;
  readonly errors: ErrorOutput;
}

interface PendingCall {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** A plugin in a process of its own, from its start to its end. */
export class PluginProcess implements PluginBackend {
  readonly description: PluginDescription;
  readonly #child: ChildProcess;
  readonly #messages: Messages;
  readonly #errors: ErrorOutput;
  readonly #calls = new Map<number, PendingCall>();
  readonly #streams = new Map<number, Channel<string>>();
  readonly #options: PluginProcessOptions;
  readonly #pingMs: number;
  readonly #pings: NodeJS.Timeout;
  #missed = 0;
  #lastId = 0;
  #memoryBytes = 0;
  #ending: { readonly kind: PluginFaultKind; readonly reason: string } | undefined;
  #closed = false;

  /** Starts the process and has it load the plugin. Rejects with the reason of a refusal. */
  static async start(options: PluginProcessOptions): Promise<PluginProcess> {
    const { entry, kind } = options;
    const child = spawn(process.execPath, [...childFlags(entry), PROGRAM], {
      env: pluginEnvironment(process.env),
      stdio: ["ignore", "pipe", "pipe", "pipe"],
    });
    const messages: Messages = new MessageSocket(child.stdio[MESSAGES_FD] as Socket);
    yieldTo(child);
    const errors = new ErrorOutput();
    logLines(child.stdout, options.log);
    logLines(child.stderr, (line) => {
      errors.read(line);
      options.log(line);
    });
    try {
      const starting = { child, messages, errors };
      const description = await descriptionOf(starting, { type: "load", entry, kind });
      return new PluginProcess(starting, description, options);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  private constructor(
    { child, messages, errors }: Started,
    description: PluginDescription,
    options: PluginProcessOptions,
  ) {
    this.#child = child;
    this.#messages = messages;
    this.#errors = errors;
    this.description = description;
    this.#options = options;
    messages.onMessage = (message) => this.#receive(message);
    messages.onFault = ({ message }) => this.#end("exited", `${NO_MESSAGE}: ${message}`);
    child.once("exit", (code, signal) => this.#ended(code, signal));
    child.on("error", () => this.#end("exited", "its process could not be reached"));
    this.#pingMs = options.pingMs ?? PING_MS;
    this.#pings = setInterval(() => this.#ping(), this.#pingMs);
    this.#pings.unref();
    if (child.exitCode !== null || child.signalCode !== null) {
      setImmediate(() => this.#ended(child.exitCode, child.signalCode));
    }
  }

  get memoryBytes(): number {
    return this.#memoryBytes;
  }

  async call(call: PluginCall, limit: CallLimit): Promise<unknown> {
    this.#admit();
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      let remove = () => {};
      const settle = () => {
        this.#calls.delete(id);
        remove();
      };
      this.#calls.set(id, {
        resolve: (value) => {
          settle();
          resolve(value);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
      this.#send({ type: "call", id, call });
      remove = limit.onEnded(() => {
        this.#calls.delete(id);
        this.#send({ type: "cancel", id });
        reject(new AppError("cancelled", "The call was cancelled."));
      });
    });
  }

  async *stream(call: RouteCall, limit: CallLimit): AsyncGenerator<string> {
    this.#admit();
    const id = ++this.#lastId;
    const events = new Channel<string>(CREDITS);
    this.#streams.set(id, events);
    const remove = limit.onEnded(() =>
      events.fail(new AppError("cancelled", "The call was cancelled.")),
    );
    try {
      this.#send({ type: "stream", id, call });
      this.#send({ type: "more", id, count: CREDITS });
      for await (const text of events) {
        yield text;
        this.#send({ type: "more", id, count: 1 });
      }
    } finally {
      this.#streams.delete(id);
      remove();
      this.#send({ type: "cancel", id });
    }
  }

  close(): void {
    this.#closed = true;
    this.#child.kill("SIGKILL");
  }

  #admit(): void {
    if (!this.#messages.isFull) return;
    const message = `The plugin ${this.description.name} does not read its calls.`;
    throw new AppError("overloaded", message, { retryAfterMs: 1_000 });
  }

  /** The plugin's messages may be anything: what does not belong is dropped. */
  #receive(message: FromPlugin): void {
    switch (message?.type) {
      case "result":
        this.#calls.get(message.id)?.resolve(message.value);
        break;
      case "failed":
        this.#failed(message.id, message.error);
        break;
      case "item":
        this.#received(message.id, message.text);
        break;
      case "end":
        this.#streams.get(message.id)?.close();
        break;
      case "pong":
        this.#missed = 0;
        this.#measured(Number(message.memoryBytes));
    }
  }

  #received(id: number, text: unknown): void {
    const events = this.#streams.get(id);
    if (!events || typeof text !== "string" || events.ended || events.push(text)) return;
    events.fail(new PluginFault("it sends more events than it was asked for"));
  }

  #failed(id: number, given: CallError): void {
    const { code, message, param, faults } = given ?? {};
    const known = { code, message: String(message), param, faults };
    const error = callRefusal(known) ?? new PluginFault(known.message);
    this.#calls.get(id)?.reject(error);
    this.#streams.get(id)?.fail(error);
  }

  #measured(bytes: number): void {
    this.#memoryBytes = bytes;
    const { memoryMib } = this.#options.entry;
    if (bytes <= memoryMib * 2 ** 20) return;
    this.#end(
      "memory",
      `its process has ${Math.ceil(bytes / 2 ** 20)} MiB, more than ${memoryMib}`,
    );
  }

  #ping(): void {
    if (this.#missed >= MISSED_PINGS) {
      this.#end("blocked", `its process did not answer for ${MISSED_PINGS * this.#pingMs} ms`);
    }
    this.#missed++;
    this.#send({ type: "ping" });
  }

  /** Ends the process, whatever it does. */
  #end(kind: PluginFaultKind, reason: string): void {
    this.#ending ??= { kind, reason };
    this.#child.kill("SIGKILL");
  }

  #ended(code: number | null, signal: string | null): void {
    clearInterval(this.#pings);
    const { kind, reason } = this.#ending ?? this.#errors.exitOf(code, signal);
    const error = new AppError(
      "unavailable",
      `The plugin ${this.description.name} has ended: ${reason}.`,
      {
        retryAfterMs: 1_000,
      },
    );
    for (const call of [...this.#calls.values()]) call.reject(error);
    for (const events of this.#streams.values()) events.fail(error);
    if (this.#closed) return;
    this.#closed = true;
    this.#options.onEnd(kind, reason);
  }

  #send(message: ToPlugin): void {
    this.#messages.send(message);
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
function descriptionOf(
  { child, messages, errors }: Started,
  load: ToPlugin,
): Promise<PluginDescription> {
  return new Promise((resolve, reject) => {
    const settle = (finish: () => void) => {
      clearTimeout(late);
      child.off("exit", onExit).off("error", onError);
      finish();
    };
    const fail = (reason: string) => settle(() => reject(new Error(reason)));
    messages.onFault = ({ message }) => fail(`${NO_MESSAGE}: ${message}`);
    messages.onMessage = (message: unknown) => {
      const { type, reason, description } = (message ?? {}) as Record<string, unknown>;
      if (type === "refused") return fail(String(reason).slice(0, LINE_CHARACTERS));
      if (type !== "loaded") return;
      const { data, error } = pluginDescription.safeParse(description);
      if (data) settle(() => resolve(data));
      else fail(`it describes itself wrongly: ${error.message}`);
    };
    const onExit = (code: number | null, signal: string | null) => {
      const { reason } = errors.exitOf(code, signal);
      const last = errors.lastLine;
      fail(`while it loaded, ${reason}${last && `; its last line: ${last}`}`);
    };
    const onError = (error: Error) => fail(error.message);
    const late = setTimeout(() => fail(`it did not load within ${START_MS} ms`), START_MS);
    child.once("exit", onExit).once("error", onError);
    messages.send(load);
  });
}

/** Its output as lines of the log, at a bounded rate and length. */
function logLines(stream: Readable | null, log: (line: string) => void): void {
  let second = 0;
  let lines = 0;
  let rest = "";
  const show = (line: string) => {
    const now = Math.floor(performance.now() / 1_000);
    if (now !== second) [second, lines] = [now, 0];
    lines++;
    if (lines <= LINES_PER_SECOND) log(line.slice(0, LINE_CHARACTERS));
    else if (lines === LINES_PER_SECOND + 1) log("more output in this second is not shown");
  };
  stream?.setEncoding("utf8").on("data", (text: string) => {
    const [first = "", ...more] = text.split("\n");
    rest = (rest + first).slice(0, LINE_CHARACTERS);
    for (const line of more) {
      show(rest);
      rest = line.slice(0, LINE_CHARACTERS);
    }
  });
}
