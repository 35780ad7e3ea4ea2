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
    .command("log")
    .description("log an event of your own")
    .argument("<type>", "its type, as MODEL_TRAINING_START")
    .option("--data <json>", "its data, a JSON object", "{}")
    .option("--subject <subject>", "what it is about")
    .option("--tags <tags>", "tags, separated by commas")
    .option("--source <uri>", "its source; with --id the event is logged once")
    .option("--id <id>", "its id")
    .option("--stream <name>", "the stream whose next event it is")
    .option("--expected-revision <n>", "revision of the stream's last event, none, exists or any")
    .option("--about <person>", "whom it is about; its data are encrypted under that one's key")
    .option("--compliance <level>", "its compliance level")
    .action(lazy(async () => (await import("./commands/events-log.ts")).logEvent));
  events
    .command("keys")
    .description("print the public keys of the log, or add one")
    .option("--rotate", "have the log signed by a new key from now on")
    .action(lazy(async () => (await import("./commands/events-log.ts")).printKeys));
  events
    .command("shred")
    .description("remove a subject's key: its personal data cannot be read any more")
    .argument("<subject>", "user:ID or key:ID of a caller, or whom logged events are about")
    .action(lazy(async () => (await import("./commands/events-log.ts")).shredEvents));
  addProofs(events, lazy);
}

/** What shows that nothing was changed. */
function addProofs(events: Command, lazy: Lazy): void {
  events
    .command("cosign")
    .description("add signatures of witnesses to a checkpoint")
    .argument("<size>", "its number of events")
    .requiredOption("--signatures <file>", "file with the lines of signatures")
    .action(lazy(async () => (await import("./commands/events-log.ts")).cosignEvents));
  events
    .command("export")
    .description("write events with their proofs, for `heddle events verify`")
    .option("--first <n>", "the first event")
    .option("--end <n>", "the event after the last (default: all that are signed)")
    .option("--since <n>", "a number of events whose checkpoint you have")
    .option("--cosigned", "by the newest checkpoint that a witness signed")
    .option("--output-file <file>", "output file (default: standard output)")
    .action(lazy(async () => (await import("./commands/events-log.ts")).exportEvents));
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

/** Adds `heddle webhooks ...`. */
export function addWebhooks(program: Command, lazy: Lazy): void {
  const webhooks = program.command("webhooks").description("send events of the log to URLs");
  webhooks
    .command("create")
    .description("send the events from now on to a URL, and print the secret")
    .argument("<url>", "the URL")
    .option("--types <types>", "types of events (default: all)")
    .option("--project <name>", "only events of that project")
    .action(lazy(async () => (await import("./commands/webhooks.ts")).createWebhook));
  webhooks
    .command("list")
    .description("show the webhooks")
    .action(lazy(async () => (await import("./commands/webhooks.ts")).listWebhooks));
  webhooks
    .command("remove")
    .description("remove a webhook")
    .argument("<id>", "its id")
    .action(lazy(async () => (await import("./commands/webhooks.ts")).removeWebhook));
  webhooks
    .command("rotate")
    .description("print a new secret; for a day both sign")
    .argument("<id>", "its id")
    .action(lazy(async () => (await import("./commands/webhooks.ts")).rotateWebhook));
  webhooks
    .command("retry")
    .description("send the events again that were given up")
    .argument("<id>", "its id")
    .action(lazy(async () => (await import("./commands/webhooks.ts")).retryWebhook));
}
