import type { Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

/** Adds `heddle plugins ...`. */
export function addPlugins(program: Command, lazy: Lazy): void {
  const plugins = program.command("plugins").description("show plugins");
  plugins
    .command("list")
    .description("list the plugins of a master, with what they add and how often they failed")
    .action(lazy(async () => (await import("./commands/plugins.ts")).listPlugins));
  plugins
    .command("inspect")
    .description("show one plugin of a master; of a file or folder, without a cluster, its digest")
    .argument("<plugin>", "plugin name, or ./FILE or ./FOLDER")
    .option("--config <json>", "of a file or folder: the settings to check it with")
    .action(lazy(async () => (await import("./commands/plugins.ts")).inspectPlugin));
  plugins
    .command("run")
    .description("run a command that a plugin on this machine adds")
    .argument("<place>", "./FILE, ./FOLDER, or an installed package")
    .argument("<command>", "command of the plugin")
    .argument("[args...]", "its arguments")
    .action(lazy(async () => (await import("./commands/plugins.ts")).runPluginCommand));
}
