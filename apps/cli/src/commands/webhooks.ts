import type { WebhookView, WebhookWithSecret } from "@heddle/contracts/api/events/webhooks";
import type { Command } from "commander";
import { wordsOf } from "../comma-list.ts";
import { type CommandContext, commandContext } from "../command-context.ts";
import {
  type Column,
  isRecordFormat,
  printChange,
  printRecord,
  printRows,
} from "../output/rows.ts";

const COLUMNS: readonly Column<WebhookView>[] = [
  { header: "ID", value: ({ id }) => id },
  { header: "URL", value: ({ url }) => url },
  { header: "TYPES", value: ({ types }) => types.join(",") || "all" },
  { header: "NEXT", value: ({ next_sequence }) => next_sequence },
  { header: "WAITING", value: ({ waiting }) => String(waiting) },
  { header: "FAILED", value: ({ failed }) => String(failed.length) },
  { header: "PROJECT", value: ({ project }) => project ?? "all", wide: true },
  { header: "LAST FAILURE", value: ({ failed }) => failed.at(-1)?.message ?? "", wide: true },
];

/** `heddle webhooks create <url>`: prints the secret alone on standard output. */
export async function createWebhook(command: Command): Promise<number> {
  const context = commandContext(command);
  const [url = ""] = command.args;
  const { types, project } = command.opts<{ types?: string; project?: string }>();
  const settings = {
    url,
    ...(types !== undefined && { types: wordsOf(types) }),
    ...(project !== undefined && { project }),
  };
  return printSecret(await context.heddle.webhooks.create(settings), context);
}

/** `heddle webhooks list`. */
export async function listWebhooks(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRows([...(await heddle.webhooks.list())], COLUMNS, format, data);
  return 0;
}

/** `heddle webhooks remove <id>`. */
export async function removeWebhook(command: Command): Promise<number> {
  const context = commandContext(command);
  const [name = ""] = command.args;
  const record = await context.heddle.webhooks.remove(name);
  printChange({ record, name, sentence: `webhook ${name} is removed` }, context);
  return 0;
}

/** `heddle webhooks rotate <id>`: prints the new secret alone on standard output. */
export async function rotateWebhook(command: Command): Promise<number> {
  const context = commandContext(command);
  return printSecret(await context.heddle.webhooks.rotateSecret(command.args[0] ?? ""), context);
}

/** `heddle webhooks retry <id>`. */
export async function retryWebhook(command: Command): Promise<number> {
  const context = commandContext(command);
  const [name = ""] = command.args;
  const record = await context.heddle.webhooks.retry(name);
  const sentence = `webhook ${name} sends ${record.waiting} events again`;
  printChange({ record, name, sentence }, context);
  return 0;
}

function printSecret(
  webhook: WebhookWithSecret,
  { data, format, messages }: CommandContext,
): number {
  if (isRecordFormat(format)) printRecord(webhook, webhook.id, format, data);
  else {
    messages.write(`webhook ${webhook.id}; store its secret now, it is not shown again:\n`);
    data.write(`${webhook.secret}\n`);
  }
  return 0;
}
