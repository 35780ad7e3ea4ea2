import type { Command } from "commander";
import type { Lazy } from "../cluster-verbs.ts";

/** Adds `heddle config ...`. */
export function addConfig(program: Command, lazy: Lazy): void {
  const config = program
    .command("config")
    .description("check and describe the configuration file of masters; needs no cluster");
  config
    .command("validate")
    .description("check a configuration file; shows all faults, exits with 1 if there are any")
    .argument("<file>", "YAML or JSON file")
    .option("--env", "check the file together with the HEDDLE_* variables of this shell")
    .action(lazy(async () => (await import("./config-commands.ts")).validateConfig));
  config
    .command("schema")
    .description("print the JSON Schema of the configuration file, for editors")
    .action(lazy(async () => (await import("./config-commands.ts")).printConfigSchema));
  config
    .command("example")
    .description("print a configuration file of all settings with their defaults")
    .action(lazy(async () => (await import("./config-commands.ts")).printConfigExample));
}
