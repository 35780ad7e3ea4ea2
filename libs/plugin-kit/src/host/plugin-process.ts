import type { ChildProcess } from "node:child_process";
import { Channel } from "@heddle/base/channel";
import { AppError } from "@heddle/base/errors";
import { residentBytesOf } from "@heddle/base/process/resident-bytes";
import type { PluginFaultKind } from "../loading/load-fault.ts";
import { type PluginBackend, PluginFault } from "./backend.ts";
import type { CallLimit } from "./call-limit.ts";
import type { PluginDescription } from "./description.ts";
import type { FromPlugin, ToPlugin } from "./messages.ts";
import { type CallError, callRefusal, type PluginCall, type RouteCall } from "./plugin-calls.ts";
import {
  type LoadedProcess,
  memoryExcess,
  NO_MESSAGE,
  type PluginStartOptions,
  startPlugin,
} from "./plugin-start.ts";

const PING_MS = 1_000;
/** Pings without an answer after which its loop counts as blocked. */
const MISSED_PINGS = 5;
/**
 * What messages that no call waits for may cost between two pings, in characters; late answers are such
 * messages. More are a flood, which this process would do nothing but read.
 */
const MAX_STRAY = 64 * 2 ** 20;
/** What each of them costs beside its characters. */
const STRAY_COST = 1_000;
/** Events of a stream on their way. */
const CREDITS = 32;

export interface PluginProcessOptions extends PluginStartOptions {
  /** How often the process is asked whether it answers. */
  readonly pingMs: number | undefined;
  /** Called once, when the process has ended other than by `close`. */
  onEnd(kind: PluginFaultKind, reason: string): void;
}

interface PendingCall {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** A plugin in a process of its own, from its start to its end. */
export class PluginProcess implements PluginBackend {
  readonly description: PluginDescription;
  readonly #child: ChildProcess;
  readonly #messages: LoadedProcess["messages"];
  readonly #errors: LoadedProcess["errors"];
  readonly #calls = new Map<number, PendingCall>();
  readonly #streams = new Map<number, Channel<string>>();
  readonly #options: PluginProcessOptions;
  readonly #pingMs: number;
  readonly #pings: NodeJS.Timeout;
  #missed = 0;
  #stray = 0;
  #lastId = 0;
  #memoryBytes = 0;
  #ending: { readonly kind: PluginFaultKind; readonly reason: string } | undefined;
  #closed = false;

  /** Starts the process and has it load the plugin. Rejects with the reason of a refusal. */
  static async start(options: PluginProcessOptions): Promise<PluginProcess> {
    return new PluginProcess(await startPlugin(options), options);
  }

  private constructor(
    { child, messages, errors, description }: LoadedProcess,
    options: PluginProcessOptions,
  ) {
    this.#child = child;
    this.#messages = messages;
    this.#errors = errors;
    this.description = description;
    this.#options = options;
    messages.onMessage = (message, length) => {
      if (!this.#receive(message)) this.#bearStray(length);
    };
    messages.onAnswer = (id, text) => {
      if (!this.#answered(id, text)) this.#bearStray(text.length);
    };
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

  call(call: PluginCall, limit: CallLimit): Promise<unknown> {
    this.#admit();
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#send({ type: "call", id, call });
      limit.onEnded(() => {
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
    limit.onEnded(() => events.fail(new AppError("cancelled", "The call was cancelled.")));
    try {
      this.#send({ type: "stream", id, call });
      this.#send({ type: "more", id, count: CREDITS });
      for await (const text of events) {
        yield text;
        this.#send({ type: "more", id, count: 1 });
      }
    } finally {
      this.#streams.delete(id);
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

  /** Whether something waits for the message: the plugin may send anything, and what does not belong is dropped. */
  #receive(message: FromPlugin): boolean {
    switch (message?.type) {
      case "result":
        return this.#answered(message.id, message.value);
      case "failed":
        return this.#failed(message.id, message.error);
      case "item":
        return this.#received(message.id, message.text);
      case "end": {
        const events = this.#streams.get(message.id);
        events?.close();
        return events !== undefined;
      }
      case "pong": {
        const isAsked = this.#missed > 0;
        this.#missed = 0;
        if (process.platform !== "linux") this.#measured(Number(message.memoryBytes));
        return isAsked;
      }
      default:
        return false;
    }
  }

  #answered(id: number, value: unknown): boolean {
    const call = this.#taken(id);
    call?.resolve(value);
    return call !== undefined;
  }

  /** The call that waits for an answer, which it is about to have. */
  #taken(id: number): PendingCall | undefined {
    const call = this.#calls.get(id);
    if (call) this.#calls.delete(id);
    return call;
  }

  #bearStray(length: number): void {
    this.#stray += length + STRAY_COST;
    if (this.#stray > MAX_STRAY) this.#end("exited", "it sent messages without end");
  }

  #received(id: number, text: unknown): boolean {
    const events = this.#streams.get(id);
    if (!events || typeof text !== "string" || events.ended) return false;
    if (!events.push(text))
      events.fail(new PluginFault("it sends more events than it was asked for"));
    return true;
  }

  #failed(id: number, given: CallError): boolean {
    const { code, message, param, faults } = given ?? {};
    const known = { code, message: String(message), param, faults };
    const error = callRefusal(known) ?? new PluginFault(known.message);
    const call = this.#taken(id);
    const events = this.#streams.get(id);
    call?.reject(error);
    events?.fail(error);
    return (call ?? events) !== undefined;
  }

  #measured(bytes: number): void {
    this.#memoryBytes = bytes;
    const excess = memoryExcess(bytes, this.#options.entry);
    if (excess !== undefined) this.#end("memory", excess);
  }

  #ping(): void {
    if (process.platform === "linux") this.#measured(residentBytesOf(this.#child.pid));
    if (this.#missed >= MISSED_PINGS) {
      this.#end("blocked", `its process did not answer for ${MISSED_PINGS * this.#pingMs} ms`);
    }
    this.#missed++;
    this.#stray = 0;
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
    for (const call of this.#calls.values()) call.reject(error);
    this.#calls.clear();
    for (const events of this.#streams.values()) events.fail(error);
    if (this.#closed) return;
    this.#closed = true;
    this.#options.onEnd(kind, reason);
  }

  #send(message: ToPlugin): void {
    this.#messages.send(message);
  }
}
