import { AppError } from "@heddle/base/errors";
import { loadPlugin } from "../loading/load-plugin.ts";
import type { HostedEntry } from "../loading/plugin-list.ts";
import { type PluginBackend, PluginFault } from "./backend.ts";
import { describePlugin } from "./description.ts";
import { callErrorOf, callRefusal, PluginCalls } from "./plugin-calls.ts";

/** Loads a plugin into this process: no call crosses to another, and nothing contains its code. */
export async function loadInline(
  entry: HostedEntry,
  log: (line: string) => void,
): Promise<PluginBackend> {
  const loaded = await loadPlugin(entry, { kind: "master", log });
  const calls = new PluginCalls(loaded.registry);
  const attributed = (thrown: unknown): Error => {
    const error = callErrorOf(thrown);
    return callRefusal(error) ?? new PluginFault(error.message);
  };
  return {
    description: describePlugin(loaded),
    memoryBytes: 0,
    call: (call, signal) =>
      untilAborted(calls.call(call, signal), signal).catch((error: unknown) =>
        Promise.reject(attributed(error)),
      ),
    stream: async function* (call, signal) {
      const events = calls.stream(call, signal)[Symbol.asyncIterator]();
      for (;;) {
        const next = await untilAborted(events.next(), signal).catch((error: unknown) =>
          Promise.reject(attributed(error)),
        );
        if (next.done) return;
        yield next.value;
      }
    },
    close: () => undefined,
  };
}

/** Rejects when the signal aborts: a plugin may never settle. */
function untilAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(new AppError("cancelled", "The call was cancelled."));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
