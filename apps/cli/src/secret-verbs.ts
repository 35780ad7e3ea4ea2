import type { Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

/** Adds `heddle secrets ...`. */
export function addSecrets(program: Command, lazy: Lazy): void {
  const secrets = program
    .command("secrets")
    .description("manage the secrets of a project, which its jobs name");
  secrets
    .command("list")
    .description("list the secrets, without their values")
    .action(lazy(async () => (await import("./commands/access/secrets.ts")).listSecrets));
  secrets
    .command("get")
    .description("show a secret, without its value")
    .argument("<name>", "name of the secret")
    .action(lazy(async () => (await import("./commands/access/secrets.ts")).getSecret));
  secrets
    .command("set")
    .description("create a secret, or give it another value, from standard input or a file")
    .argument("<name>", "name of the secret")
    .option("--from-file <file>", "file that holds the value")
    .action(lazy(async () => (await import("./commands/access/secrets.ts")).setSecret));
  secrets
    .command("remove")
    .description("remove a secret that no job names which has not ended")
    .argument("<name>", "name of the secret")
    .action(lazy(async () => (await import("./commands/access/secrets.ts")).removeSecret));
}
