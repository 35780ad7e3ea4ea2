import { resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { PluginView } from "@heddle/contracts/api/plugins/plugins";
import { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import { loadPlugin } from "@heddle/plugin-kit/loading/load-plugin";
import { ALONE, readPluginSetting } from "@heddle/plugin-kit/loading/plugin-list";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { type Column, printRecord, printRows, type RowFormat } from "../output/rows.ts";

const COLUMNS: readonly Column<PluginView>[] = [
  { header: "NAME", value: ({ id }) => id },
  { header: "VERSION", value: ({ version }) => version ?? "" },
  { header: "STATE", value: ({ state }) => state },
  { header: "ADDS", value: ({ capabilities }) => capabilities.join(",") },
  { header: "CALLS", value: ({ calls }) => String(calls) },
  { header: "FAULTS", value: ({ faults }) => faultsText(faults) },
  { header: "REASON", value: ({ reason }) => reason ?? "" },
];

function faultsText(faults: PluginView["faults"]): string {
  const some = Object.entries(faults).filter(([, count]) => count > 0);
  return some.map(([kind, count]) => `${kind} ${count}`).join(", ") || "0";
}

/** `heddle plugins list`. */
export async function listPlugins(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRows([...(await heddle.plugins.list())], COLUMNS, format, data);
  return 0;
}

/** `heddle plugins inspect <plugin>`: one of a master, or a file or folder of this machine. */
export async function inspectPlugin(command: Command): Promise<number> {
  const [name = ""] = command.args;
  const isPath = /^(\.{1,2}(\/|$)|\/|~)/.test(name);
  const { config } = command.opts() as { config?: string };
  if (isPath) return inspectFile(command, resolve(name), config);
  if (config !== undefined) {
    throw new AppError("invalid_value", `--config is for a file or folder: give ./${name}`);
  }
  const { heddle, data, format } = commandContext(command);
  printRecord(await heddle.plugins.get(name), name, whole(format), data);
  return 0;
}

/** Loads the plugin as a master would; a refusal is the error. */
async function inspectFile(command: Command, from: string, config?: string): Promise<number> {
  const { data, format } = commandContext(command);
  const settings = config === undefined ? {} : { config: parsed(config) };
  const entry = { ...ALONE, from, base: process.cwd(), ...settings };
  const plugin = await HostedPlugin.start(entry, SILENT);
  const { state, reason, description } = plugin.status();
  plugin.close();
  if (state === "refused" || !description) {
    throw new AppError("invalid_value", `the plugin ${from} cannot be used: ${reason}`);
  }
  printRecord(description, description.name, whole(format), data);
  return 0;
}

const SILENT = { info: () => {}, warn: () => {}, error: () => {} };

/** `heddle plugins run <place> <command> [args]`: in this process, with the caller's cluster and key. */
export async function runPluginCommand(command: Command): Promise<number> {
  const [place = "", verb = "", ...args] = command.args;
  const { connection } = commandContext(command);
  const { entries, unreadable } = readPluginSetting([place], process.cwd());
  const [entry] = entries;
  if (!entry) throw new AppError("invalid_value", `${place}: ${unreadable[0]?.reason}`);
  const log = (message: string) => void process.stderr.write(`${message}\n`);
  const { registry, plugin } = await loadPlugin(entry, { kind: "cli", log }).catch((cause) => {
    const message = `the plugin ${place} cannot be used: ${(cause as Error).message}`;
    throw new AppError("invalid_value", message, { cause });
  });
  const found = registry.commands.get(verb);
  if (!found) {
    const known = [...registry.commands.keys()].join(", ") || "none";
    const message = `the plugin ${plugin.name} has no command ${verb}; its commands: ${known}`;
    throw new AppError("invalid_value", message);
  }
  const { endpoint, apiKey } = connection;
  const code: unknown = await found.run({ args, endpoint, apiKey });
  return Number.isInteger(code) ? Number(code) : 0;
}

/** A plugin has more than a row shows. */
function whole(format: RowFormat): RowFormat {
  return format === "table" || format === "wide" ? "yaml" : format;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new AppError("invalid_value", `--config takes JSON: ${(error as Error).message}`);
  }
}
