import { AppError, type ErrorCode } from "@heddle/base/errors";
import { z } from "zod";
import { PLUGIN_API_VERSION, type Plugin, type PluginApi } from "./plugin.ts";

/** The module that plugins import, as `heddle/plugin-kit`. */
export { PLUGIN_API_VERSION, type Plugin, type PluginApi, z };

/** Returns the plugin as it is; its types are checked by the compiler. */
export function definePlugin<Config = Record<string, never>>(
  plugin: Plugin<Config>,
): Plugin<Config> {
  return plugin;
}

/**
 * An error that the caller of a route sees, with its status. Other errors that a plugin throws are
 * faults of the plugin: the caller sees only that it failed.
 */
export function refusal(code: ErrorCode, message: string, param?: string): Error {
  return new AppError(code, message, { param });
}
