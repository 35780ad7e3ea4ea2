import type { PluginFaultKind } from "../loading/load-fault.ts";
import type { HostedEntry } from "../loading/plugin-list.ts";
import type { PluginHostKind } from "../plugin.ts";
import type { CallError, PluginCall } from "./plugin-calls.ts";

/** The descriptor of a plugin's process for messages. */
export const MESSAGES_FD = 3;

/** To a plugin's process. */
export type ToPlugin =
  | { readonly type: "load"; readonly entry: HostedEntry; readonly kind: PluginHostKind }
  | { readonly type: "call"; readonly id: number; readonly call: PluginCall }
  /** A call whose answer is a stream; `more` asks for its next items. */
  | { readonly type: "stream"; readonly id: number; readonly call: PluginCall }
  | { readonly type: "more"; readonly id: number; readonly count: number }
  | { readonly type: "cancel"; readonly id: number }
  | { readonly type: "ping" };

/** From a plugin's process, which may send anything. Answers of routes are no such messages. */
export type FromPlugin =
  /** It begins with a part of the plugin's code that may never end. */
  | { readonly type: "loading"; readonly part: string }
  | { readonly type: "loaded"; readonly description: unknown }
  | {
      readonly type: "refused";
      readonly reason: string;
      /** Absent: what the plugin declares, or is given, is wrong. */
      readonly fault?: PluginFaultKind | undefined;
    }
  | { readonly type: "result"; readonly id: number; readonly value: unknown }
  | { readonly type: "failed"; readonly id: number; readonly error: CallError }
  | { readonly type: "item"; readonly id: number; readonly text: string }
  | { readonly type: "end"; readonly id: number }
  /** The memory counts where the parent cannot see it. */
  | { readonly type: "pong"; readonly memoryBytes: number };
