import { spawn } from "node:child_process";
import { once } from "node:events";
import { AppError } from "@heddle/base/errors";
import type { Command } from "commander";
import { dataDirectory } from "../../connection.ts";
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
  return runOnStoppedMaster([
    ...["restore", "--file", file, ...flags, ...secretsKeyFlag(secretsKeyFile)],
  ]);
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
  return runOnStoppedMaster(["recover", "--data", dataDirectory(data), ...flags]);
}

/**
 * Runs the master's program on a stopped master's files, which it alone knows how to read; its
 * output is this command's. Resolves with its exit code.
 */
export async function runOnStoppedMaster(args: readonly string[]): Promise<number> {
  const child = spawn(process.execPath, [WORKSPACE_PROGRAMS.master, ...args], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  try {
    const [code] = (await once(child, "exit")) as [number | null];
    return code ?? 1;
  } catch (cause) {
    throw new AppError("unavailable", "The master's program could not be run.", { cause });
  }
}
