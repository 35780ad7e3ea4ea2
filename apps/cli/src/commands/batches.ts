import { abortableDelay } from "@heddle/base/async/abortable-delay";
import type { ApiBatch, BatchRequest } from "@heddle/contracts/api/inference/batches";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../command-context.ts";
import { watchInterrupts } from "../interrupt.ts";
import { type Column, printChange, printRecord, printRow, printRows } from "../output/rows.ts";
import { timeOf, upload } from "./files.ts";

const POLL_MS = 1_000;
/** The exit code of a batch that ended otherwise than completed, as of a failed job. */
const FAILED_EXIT = 8;

const COLUMNS: readonly Column<ApiBatch>[] = [
  { header: "ID", value: ({ id }) => id },
  { header: "STATUS", value: ({ status }) => status },
  { header: "ENDPOINT", value: ({ endpoint }) => endpoint },
  { header: "LINES", value: ({ request_counts }) => String(request_counts.total) },
  { header: "DONE", value: ({ request_counts }) => String(request_counts.completed) },
  { header: "FAILED", value: ({ request_counts }) => String(request_counts.failed) },
  { header: "OUTPUT", value: ({ output_file_id }) => output_file_id ?? "" },
  { header: "ERRORS", value: ({ error_file_id }) => error_file_id ?? "" },
  { header: "CREATED", value: ({ created_at }) => timeOf(created_at), wide: true },
];

/** `heddle batches create <file>`: prints the id alone on standard output, for `$(...)`. */
export async function createBatch(command: Command): Promise<number> {
  const context = commandContext(command);
  const given = command.args[0] ?? "";
  const flags = command.opts<{ url: string; window: string; wait?: boolean }>();
  const isId = /^file-[A-Za-z0-9_-]+$/.test(given);
  const file = isId ? given : (await upload(context, given, { purpose: "batch" })).id;
  const batch = await context.heddle.batches.create({
    input_file_id: file,
    endpoint: flags.url as BatchRequest["endpoint"],
    completion_window: flags.window,
  });
  if (flags.wait) return waitFor(context, batch.id);
  printRecord(batch, batch.id, context.format, context.data);
  return 0;
}

/** `heddle batches list`. */
export async function listBatches(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const batches: ApiBatch[] = [];
  for (let after: string | undefined; ; ) {
    const page = await heddle.batches.list(after === undefined ? {} : { after });
    batches.push(...page.data);
    if (!page.has_more || page.last_id === null) break;
    after = page.last_id;
  }
  printRows(batches, COLUMNS, format, data);
  return 0;
}

/** `heddle batches get <id>`. */
export async function getBatch(command: Command): Promise<number> {
  const context = commandContext(command);
  show(context, await context.heddle.batches.retrieve(command.args[0] ?? ""));
  return 0;
}

/** `heddle batches cancel <id>`. */
export async function cancelBatch(command: Command): Promise<number> {
  const context = commandContext(command);
  const id = command.args[0] ?? "";
  const record = await context.heddle.batches.cancel(id);
  printChange({ record, name: id, sentence: `batch ${id} is ${record.status}` }, context);
  return 0;
}

async function waitFor(context: CommandContext, id: string): Promise<number> {
  const interrupts = watchInterrupts();
  try {
    for (let shown = ""; ; ) {
      const batch = await context.heddle.batches.retrieve(id, { signal: interrupts.signal });
      const { total, completed, failed } = batch.request_counts;
      const text = `${id} ${batch.status}: ${completed + failed} of ${total} lines\n`;
      if (text !== shown) context.messages.write(text);
      shown = text;
      if (!/^(completed|failed|expired|cancelled)$/.test(batch.status)) {
        await abortableDelay(POLL_MS, interrupts.signal);
        continue;
      }
      show(context, batch);
      return batch.status === "completed" ? 0 : FAILED_EXIT;
    }
  } finally {
    interrupts.release();
  }
}

function show({ format, data, messages }: CommandContext, batch: ApiBatch): void {
  printRow(batch, COLUMNS, format, data);
  for (const { line, message } of batch.errors?.data ?? []) {
    messages.write(line === null ? `${message}\n` : `line ${line}: ${message}\n`);
  }
}
