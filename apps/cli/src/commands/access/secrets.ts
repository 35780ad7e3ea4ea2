import { readFileSync } from "node:fs";
import { text as readAll } from "node:stream/consumers";
import { AppError } from "@heddle/base/errors";
import type { SecretView } from "@heddle/contracts/api/access/secrets";
import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { type Column, printChange, printRow, printRows } from "../../output/rows.ts";

const COLUMNS: readonly Column<SecretView>[] = [
  { header: "NAME", value: ({ name }) => name },
  { header: "PROJECT", value: ({ project }) => project },
  { header: "VERSION", value: ({ version }) => String(version) },
  { header: "UPDATED", value: ({ updated_at }) => updated_at },
];

/** `heddle secrets list`. */
export async function listSecrets(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const secrets: SecretView[] = [];
  for await (const secret of heddle.secrets.list()) secrets.push(secret);
  printRows(secrets, COLUMNS, format, data);
  return 0;
}

/** `heddle secrets get <name>`. */
export async function getSecret(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRow(await heddle.secrets.get(command.args[0] ?? ""), COLUMNS, format, data);
  return 0;
}

/** `heddle secrets set <name>`: the value is never an argument, which other users could read. */
export async function setSecret(command: Command): Promise<number> {
  const context = commandContext(command);
  const [name = ""] = command.args;
  const { fromFile } = command.opts<{ fromFile?: string }>();
  const value = fromFile === undefined ? await typedValue() : fileValue(fromFile);
  const record = await context.heddle.secrets.set(name, value);
  const sentence = `secret ${name} of the project ${record.project} has version ${record.version}`;
  printChange({ record, name, sentence }, context);
  return 0;
}

/** `heddle secrets remove <name>`. */
export async function removeSecret(command: Command): Promise<number> {
  const context = commandContext(command);
  const [name = ""] = command.args;
  const record = await context.heddle.secrets.remove(name);
  printChange({ record, name, sentence: `secret ${name} is removed` }, context);
  return 0;
}

/** The whole standard input, but for the newline that `echo` and a terminal end it with. */
async function typedValue(): Promise<string> {
  if (process.stdin.isTTY) {
    const message =
      "The value is missing: give it on standard input, as in `heddle secrets set NAME < FILE`, or with --from-file FILE.";
    throw new AppError("invalid_value", message);
  }
  return (await readAll(process.stdin)).replace(/\r?\n$/, "");
}

function fileValue(file: string): string {
  try {
    return readFileSync(file, "utf8").replace(/\r?\n$/, "");
  } catch (error) {
    const message = `--from-file: ${file} cannot be read: ${(error as Error).message}.`;
    throw new AppError("invalid_value", message, { cause: error });
  }
}
