import type { Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

/** Adds `heddle files ...`. */
export function addFiles(program: Command, lazy: Lazy): void {
  const files = program.command("files").description("manage the files that the cluster keeps");
  files
    .command("upload")
    .description("store a file and print its id")
    .argument("<file>", "the file")
    .option("--purpose <purpose>", "what it is for", "batch")
    .option("--expires-after <seconds>", "seconds after which it is deleted (default: never)")
    .action(lazy(async () => (await import("./commands/files.ts")).uploadFile));
  files
    .command("list")
    .description("list the files of the key")
    .option("--purpose <purpose>", "only files of that purpose")
    .action(lazy(async () => (await import("./commands/files.ts")).listFiles));
  files
    .command("download")
    .description("download a file")
    .argument("<id>", "file id")
    .option("--output-file <file>", "output file; `-` is standard output (default: its name)")
    .action(lazy(async () => (await import("./commands/files.ts")).fetchFile));
  files
    .command("delete")
    .description("delete a file")
    .argument("<id>", "file id")
    .action(lazy(async () => (await import("./commands/files.ts")).deleteFile));
}

/** Adds `heddle batches ...`. */
export function addBatches(program: Command, lazy: Lazy): void {
  const batches = program
    .command("batches")
    .description("run the calls of files at a low priority");
  batches
    .command("create")
    .description("create a batch and print its id")
    .argument("<file>", "a file with a call in each line, or the id of an uploaded one")
    .option("--url <path>", "what every line calls", "/v1/chat/completions")
    .option("--window <time>", "when lines that have not run expire: up to 7d", "24h")
    .option("--wait", "wait until it ends; exits with 8 unless it is completed")
    .action(lazy(async () => (await import("./commands/batches.ts")).createBatch));
  batches
    .command("list")
    .description("list the batches of the key, newest first")
    .action(lazy(async () => (await import("./commands/batches.ts")).listBatches));
  batches
    .command("get")
    .description("show a batch")
    .argument("<id>", "batch id")
    .action(lazy(async () => (await import("./commands/batches.ts")).getBatch));
  batches
    .command("cancel")
    .description("cancel a batch; the results of its finished lines stay")
    .argument("<id>", "batch id")
    .action(lazy(async () => (await import("./commands/batches.ts")).cancelBatch));
}
