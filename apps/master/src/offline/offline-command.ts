import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { AppError, ERROR_TABLE, toAppError } from "@heddle/base/errors";
import { readSecretKeys, type SecretKeys } from "@heddle/base/secret-keys";
import { backupStopped } from "./offline-backup.ts";
import type { OfflineReport } from "./offline-report.ts";
import { recoverGroup } from "./recover-group.ts";
import { restoreBackup } from "./restore-backup.ts";

const USAGE = `Usage: heddle-master backup  --data DIR --file FILE
       heddle-master restore --data DIR --file FILE [--name NAME] [--address HOST:PORT]
       heddle-master recover --data DIR [--address HOST:PORT] [--yes]
What is encrypted needs its key too: --secrets-key-file FILE
--json prints a record for programs.
`;
/** What a command line that asks for nothing is answered with. */
const USAGE_EXIT = 2;

type Flags = Readonly<
  Partial<
    Record<"data" | "file" | "name" | "address" | "secrets-key-file", string> & {
      yes: boolean;
      json: boolean;
      help: boolean;
    }
  >
>;

const COMMANDS: Readonly<Record<string, (flags: Flags) => Promise<number>>> = {
  backup: async (flags) =>
    print(await backupStopped(dataOf(flags), fileOf(flags), keysOf(flags)), flags),
  restore: async (flags) => {
    const { name = "master-1", address = "127.0.0.1:8081" } = flags;
    const dataDirectory = dataOf(flags);
    const made = { file: fileOf(flags), dataDirectory, name, address, keys: keysOf(flags) };
    return print(await restoreBackup(made), flags);
  },
  recover: async (flags) => {
    const { address, yes = false } = flags;
    const options = { dataDirectory: dataOf(flags), address, confirmed: yes, keys: keysOf(flags) };
    const outcome = await recoverGroup(options);
    if (outcome.done) return print(outcome, flags);
    if (flags.json) print(outcome, flags);
    else process.stderr.write(`${outcome.text}\n`);
    return USAGE_EXIT;
  },
};

/** True for a command line that works on a stopped master's data directory. */
export function isOfflineCommand([name]: readonly string[]): boolean {
  return name !== undefined && Object.hasOwn(COMMANDS, name);
}

/** Runs one of the commands on a stopped master's data; resolves with the exit code. */
export async function runOfflineCommand(args: readonly string[]): Promise<number> {
  const [name = "", ...rest] = args;
  try {
    const flags = readFlags(rest);
    if (!flags.help) return await (COMMANDS[name] as (flags: Flags) => Promise<number>)(flags);
    process.stdout.write(USAGE);
    return 0;
  } catch (thrown) {
    const { code, message } = toAppError(thrown);
    process.stderr.write(`${message}\n`);
    return ERROR_TABLE[code].exit;
  }
}

function readFlags(args: readonly string[]): Flags {
  const text = { type: "string" } as const;
  const flag = { type: "boolean" } as const;
  const texts = { data: text, file: text, name: text, address: text, "secrets-key-file": text };
  const options = { ...texts, yes: flag, json: flag, help: flag };
  try {
    return parseArgs({ args: [...args], options, strict: true }).values;
  } catch (cause) {
    throw new AppError("invalid_value", `${(cause as Error).message}.\n${USAGE}`, { cause });
  }
}

function dataOf({ data }: Flags): string {
  if (data) return resolve(data);
  throw new AppError("invalid_value", `Give --data DIR, a master's data directory.\n${USAGE}`);
}

function fileOf({ file }: Flags): string {
  if (file) return file;
  throw new AppError("invalid_value", `Give --file FILE, the backup.\n${USAGE}`);
}

function keysOf({ "secrets-key-file": file }: Flags): SecretKeys {
  return readSecretKeys(file ?? (process.env["HEDDLE_SECRETS_KEY_FILE"] || undefined), process.env);
}

function print({ record, text }: OfflineReport, { json }: Flags): number {
  process.stdout.write(`${json ? JSON.stringify(record) : text}\n`);
  return 0;
}
