import { spawn } from "node:child_process";
import { once } from "node:events";
import { text as readAll } from "node:stream/consumers";
import { AppError } from "@heddle/base/errors";
import type { Command } from "commander";
import { dataDirectory } from "../../connection.ts";
import { fieldsOf, textOf } from "../../http/json-fields.ts";
import { printRecord, type RowFormat } from "../../output/rows.ts";
import { terminal } from "../../output/terminal.ts";
import { secretsKeyFlag, WORKSPACE_PROGRAMS } from "../../up/cluster-plan.ts";

/** `heddle cluster restore <file>`. */
export function restoreCluster(command: Command): Promise<number> {
  const { data, name, address, secretsKeyFile } = command.opts<{
    data: string;
    name: string;
    address: string;
    secretsKeyFile?: string;
  }>();
  const [file = ""] = command.args;
  const flags = ["--data", dataDirectory(data), "--name", name, "--address", address];
  const args = ["restore", "--file", file, ...flags, ...secretsKeyFlag(secretsKeyFile)];
  return runOnStoppedMaster(command, args, "name");
}

/** `heddle cluster recover`. */
export function recoverCluster(command: Command): Promise<number> {
  const { data, address, yes, secretsKeyFile } = command.opts<{
    data: string;
    address?: string;
    yes?: boolean;
    secretsKeyFile?: string;
  }>();
  const flags = [
    ...(address ? ["--address", address] : []),
    ...(yes ? ["--yes"] : []),
    ...secretsKeyFlag(secretsKeyFile),
  ];
  const args = ["recover", "--data", dataDirectory(data), ...flags];
  return runOnStoppedMaster(command, args, "name");
}

/**
 * Runs the master's program on a stopped master's files, since only it can read them. Resolves with
 * its exit code. `-o name` prints the member `name` of its record.
 */
export async function runOnStoppedMaster(
  command: Command,
  args: readonly string[],
  name: "file" | "name",
): Promise<number> {
  const { output: format } = command.optsWithGlobals() as { readonly output: RowFormat };
  const isText = format === "table" || format === "wide";
  const all = [WORKSPACE_PROGRAMS.master, ...args, ...(isText ? [] : ["--json"])];
  const child = spawn(process.execPath, all, {
    stdio: ["ignore", isText ? "inherit" : "pipe", "inherit"],
  });
  const closed = once(child, "close");
  try {
    const record = child.stdout === null ? "" : await readAll(child.stdout);
    const [code] = (await closed) as [number | null];
    if (record !== "") {
      const fields = fieldsOf(JSON.parse(record));
      printRecord(fields, textOf(fields[name]), format, terminal(process.stdout));
    }
    return code ?? 1;
  } catch (cause) {
    throw new AppError("unavailable", "The master's program could not be run.", { cause });
  }
}
