import { Argument, type Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

const OF_PROJECT = "whose model it is (default: a model of the cluster)";

/** Adds `heddle limits ...`. */
export function addLimits(program: Command, lazy: Lazy): void {
  const limits = program
    .command("limits")
    .description("manage limits and budgets of keys, projects and models");
  limits
    .command("list")
    .description("list what has limits or prices")
    .action(lazy(async () => (await import("./commands/limits.ts")).listLimits));
  subject(limits.command("get").description("show the limits of a key, project or model"))
    .option("--project <name>", OF_PROJECT)
    .action(lazy(async () => (await import("./commands/limits.ts")).getLimits));
  const set = limits.command("set").description("replace the limits; unset options remove theirs");
  limitFlags(subject(set).option("--project <name>", OF_PROJECT))
    .option("--input-price <amount>", "of a model: price of a million input tokens")
    .option("--output-price <amount>", "of a model: price of a million output tokens")
    .action(lazy(async () => (await import("./commands/limits.ts")).setLimitsCommand));
}

/** Adds the options of the limits that a key may have too. */
export function limitFlags(command: Command): Command {
  return command
    .option("--requests-per-minute <n>", "maximum requests in a minute")
    .option("--tokens-per-minute <n>", "maximum tokens in a minute, input and output")
    .option("--concurrency <n>", "maximum calls at once")
    .option("--budget <amount/period>", "maximum spend, for example 100/month, 5/day, 20/total");
}

/** Adds `heddle usage`. */
export function addUsage(program: Command, lazy: Lazy): void {
  program
    .command("usage")
    .description("show what calls have used")
    .option("--by <list>", "day, key, project, model, comma-separated (default: day)")
    .option("--start <date>", "first day in UTC, as 2026-11-26 (default: 29 days before the last)")
    .option("--end <date>", "last day (default: today)")
    .option("--key <id>", "only calls of that key")
    .option("--project <name>", "only calls of that project")
    .option("--model <id>", "only calls of that model")
    .action(lazy(async () => (await import("./commands/usage.ts")).listUsage));
}

function subject(command: Command): Command {
  return command
    .addArgument(new Argument("<kind>", "whose limits").choices(["key", "project", "model"]))
    .argument("<name>", "id of a key or model, name of a project");
}
