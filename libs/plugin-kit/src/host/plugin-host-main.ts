import { Socket } from "node:net";
import { LoadFault, thrownText } from "../loading/load-fault.ts";
import { loadPlugin } from "../loading/load-plugin.ts";
import { describePlugin } from "./description.ts";
import { MessageSocket } from "./message-socket.ts";
import { type FromPlugin, MESSAGES_FD, type ToPlugin } from "./messages.ts";
import { endOwnProcess, guardSignals } from "./own-signals.ts";
import { callErrorOf, PluginCalls, type RouteCall } from "./plugin-calls.ts";

// The process of one plugin. Its parent starts it, asks it, and ends it.

// As it is before the plugin replaces it.
const { rss } = process.memoryUsage;
const socket = new Socket({ fd: MESSAGES_FD });
const messages = new MessageSocket<ToPlugin, FromPlugin>(socket);
const send = (message: FromPlugin): void => messages.send(message);
// Without its parent it must end.
socket.once("close", endOwnProcess);

/** Ends a call when the parent says so. */
class Cancellation {
  #abort: AbortController | undefined;
  isEnded = false;

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.isEnded) this.#abort.abort();
    return this.#abort.signal;
  }

  cancel(): void {
    this.isEnded = true;
    this.#abort?.abort();
  }
}

let calls: PluginCalls | undefined;
const running = new Map<number, Cancellation>();
/** What streams wait for: the number of items that may be sent, and who waits for more. */
const credits = new Map<number, { count: number; wake: () => void }>();

messages.onMessage = (message) => {
  switch (message.type) {
    case "load":
      void load(message);
      break;
    case "call":
      void run(message.id, async (limit) => {
        const value = await ready().call(message.call, limit);
        if (message.call.point === "route") messages.sendAnswer(message.id, value as string);
        else send({ type: "result", id: message.id, value });
      });
      break;
    case "stream":
      void run(message.id, (limit) => stream(message.id, message.call as RouteCall, limit));
      break;
    case "more":
      grant(message.id, message.count);
      break;
    case "cancel":
      running.get(message.id)?.cancel();
      grant(message.id, 0);
      break;
    case "ping":
      send({ type: "pong", memoryBytes: rss() });
  }
};

/** Lets a stream send this many more items; it also checks whether it was cancelled. */
function grant(id: number, count: number): void {
  const credit = credits.get(id);
  if (!credit) return;
  credit.count += count;
  credit.wake();
}

async function load({ entry, kind }: Extract<ToPlugin, { type: "load" }>): Promise<void> {
  guardSignals(entry.processes);
  try {
    const log = (message: string) => void process.stdout.write(`${message}\n`);
    const onStep = (part: string) => {
      send({ type: "loading", part });
      messages.flush();
    };
    const loaded = await loadPlugin(entry, { kind, log, onStep });
    calls = new PluginCalls(loaded.registry);
    send({ type: "loaded", description: describePlugin(loaded) });
  } catch (error) {
    const fault = error instanceof LoadFault ? error.kind : undefined;
    send({ type: "refused", reason: thrownText(error), fault });
  }
}

function ready(): PluginCalls {
  if (!calls) throw new Error("the plugin is not loaded");
  return calls;
}

async function run(id: number, work: (limit: Cancellation) => Promise<void>): Promise<void> {
  const limit = new Cancellation();
  running.set(id, limit);
  try {
    await work(limit);
  } catch (error) {
    send({ type: "failed", id, error: callErrorOf(error) });
  } finally {
    running.delete(id);
    credits.delete(id);
  }
}

async function stream(id: number, call: RouteCall, limit: Cancellation): Promise<void> {
  const credit = { count: 0, wake: () => {} };
  credits.set(id, credit);
  const granted = async () => {
    while (credit.count === 0 && !limit.isEnded) {
      await new Promise<void>((resolve) => {
        credit.wake = resolve;
      });
    }
  };
  for await (const text of ready().stream(call, limit)) {
    await granted();
    if (limit.isEnded) return;
    credit.count--;
    send({ type: "item", id, text });
  }
  send({ type: "end", id });
}
