import type { Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

function withFilters(command: Command): Command {
  return command
    .option("--type <types>", "types, as MODEL_DEPLOYMENT,KEY_CREATE")
    .option("--project <name>", "events of that project")
    .option("--subject <subject>", "the subject, or its beginning before a final *")
    .option("--user <user>", "who asked for it: key:ID or user:SUBJECT")
    .option("--tag <tag>", "a tag that it has")
    .option("--since <time>", "recorded at that time or later")
    .option("--after <sequence>", "after that event");
}

/** Adds `heddle events ...`. */
export function addEvents(program: Command, lazy: Lazy): void {
  const events = program.command("events").description("read and verify the event log");
  const list = events
    .command("list")
    .description("show events, the oldest first")
    .option("--newest", "the newest first")
    .option("--limit <n>", "number of events", "100")
    .option("--until <time>", "recorded before that time");
  withFilters(list).action(lazy(async () => (await import("./commands/events-log.ts")).listEvents));
  const follow = events.command("follow").description("show events as they come, until Ctrl-C");
  withFilters(follow).action(
    lazy(async () => (await import("./commands/events-log.ts")).followEvents),
  );
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
