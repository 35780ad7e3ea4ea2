import type { CallLimit } from "./call-limit.ts";
import type { PluginDescription } from "./description.ts";
import type { PluginCall, RouteCall } from "./plugin-calls.ts";

/** Where a plugin's code runs: in its own process, or in this one. */
export interface PluginBackend {
  readonly description: PluginDescription;
  /** The memory of its own process; 0 without one. */
  readonly memoryBytes: number;
  /** The answer, or a promise of it. */
  call(call: PluginCall, limit: CallLimit): unknown;
  stream(call: RouteCall, limit: CallLimit): AsyncIterable<string>;
  close(): void;
}

/** An error that the plugin threw; its message is for the log. */
export class PluginFault extends Error {
  override readonly name = "PluginFault";
}
