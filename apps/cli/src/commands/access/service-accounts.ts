import type { ServiceAccount } from "@heddle/contracts/api/access/service-accounts";
import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { type Column, printChange, printRow, printRows } from "../../output/rows.ts";

const COLUMNS: readonly Column<ServiceAccount>[] = [
  { header: "NAME", value: ({ name }) => name },
  { header: "STATUS", value: ({ disabled }) => (disabled ? "disabled" : "active") },
  { header: "DESCRIPTION", value: ({ description }) => description },
  { header: "CREATED", value: ({ created_at }) => created_at, wide: true },
];

/** `heddle service-accounts list`. */
export async function listServices(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const accounts: ServiceAccount[] = [];
  for await (const account of heddle.serviceAccounts.list()) accounts.push(account);
  printRows(accounts, COLUMNS, format, data);
  return 0;
}

/** `heddle service-accounts get <name>`. */
export async function getService(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRow(await heddle.serviceAccounts.get(command.args[0] ?? ""), COLUMNS, format, data);
  return 0;
}

/** `heddle service-accounts create <name>`: one that exists stays disabled if it is. */
export async function createService(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { description } = command.opts<{ description?: string }>();
  const account = await heddle.serviceAccounts.set(command.args[0] ?? "", { description });
  printRow(account, COLUMNS, format, data);
  return 0;
}

/** `heddle service-accounts disable <name>`. */
export function disableService(command: Command): Promise<number> {
  return setDisabled(command, true);
}

/** `heddle service-accounts enable <name>`. */
export function enableService(command: Command): Promise<number> {
  return setDisabled(command, false);
}

async function setDisabled(command: Command, disabled: boolean): Promise<number> {
  const context = commandContext(command);
  const { serviceAccounts } = context.heddle;
  const name = command.args[0] ?? "";
  // A name with a typo would make another account.
  await serviceAccounts.get(name);
  const record = await serviceAccounts.set(name, { disabled });
  const sentence = `service account ${name} is ${disabled ? "disabled" : "enabled"}`;
  printChange({ record, name, sentence }, context);
  return 0;
}

/** `heddle service-accounts remove <name>`. */
export async function removeService(command: Command): Promise<number> {
  const context = commandContext(command);
  const name = command.args[0] ?? "";
  const record = await context.heddle.serviceAccounts.remove(name);
  printChange({ record, name, sentence: `service account ${name} is removed` }, context);
  return 0;
}
