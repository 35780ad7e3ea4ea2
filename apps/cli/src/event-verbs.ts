import type { Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

/** Adds `heddle events ...`. */
export function addEvents(program: Command, lazy: Lazy): void {
  const events = program.command("events").description("verify the log of events");
  events
    .command("verify")
    .description("verify an export, a proof or a log's directory, without a cluster")
    .argument("<path>", "exported events, a .tlog-proof file, or the directory of a stopped log")
    .requiredOption("--origin <name>", "name of the log")
    .requiredOption("--key <key...>", "trusted key of the log or a witness, as NAME+ID+BASE64")
    .option("--checkpoint <file...>", "earlier checkpoint that must be of the same history")
    .option("--quorum <n>", "number of witnesses that must have signed", "0")
    .option("--entry <file>", "of a .tlog-proof file: the entry that it proves")
    .action(lazy(async () => (await import("./commands/events-verify.ts")).verifyEvents));
}
