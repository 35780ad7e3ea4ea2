import { AppError } from "@heddle/base/errors";
import { loadPlugin } from "../loading/load-plugin.ts";
import type { HostedEntry } from "../loading/plugin-list.ts";
import type { PluginHostKind } from "../plugin.ts";
import { type PluginBackend, PluginFault } from "./backend.ts";
import type { CallLimit } from "./call-limit.ts";
import { describePlugin } from "./description.ts";
import { callErrorOf, callRefusal, PluginCalls } from "./plugin-calls.ts";

/** Loads a plugin into this process: no call crosses to another, and nothing contains its code. */
export async function loadInline(
  entry: HostedEntry,
  kind: PluginHostKind,
  log: (line: string) => void,
): Promise<PluginBackend> {
  const loaded = await loadPlugin(entry, { kind, log });
  const calls = new PluginCalls(loaded.registry);
  const attributed = (thrown: unknown): Error => {
    const error = callErrorOf(thrown);
    return callRefusal(error) ?? new PluginFault(error.message);
  };
  return {
    description: describePlugin(loaded),
    memoryBytes: 0,
    call: (call, limit) => {
      try {
        const answer = calls.call(call, limit);
        return answer instanceof Promise ? bounded(answer, limit, attributed) : answer;
      } catch (thrown) {
        throw attributed(thrown);
      }
    },
    stream: async function* (call, limit) {
      const events = calls.stream(call, limit)[Symbol.asyncIterator]();
      for (;;) {
        const next = await bounded(events.next(), limit, attributed);
        if (next.done) return;
        yield next.value;
      }
    },
    close: () => undefined,
  };
}

/** Rejects when the call must end: a plugin may never settle. */
function bounded<Result>(
  work: Promise<Result>,
  limit: CallLimit,
  attributed: (thrown: unknown) => Error,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    limit.onEnded(() => reject(new AppError("cancelled", "The call was cancelled.")));
    work.then(resolve, (error: unknown) => reject(attributed(error)));
  });
}
