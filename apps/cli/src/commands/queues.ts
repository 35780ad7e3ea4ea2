import type { Queue, QueueSettings } from "@heddle/contracts/api/queues";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { wholeNumberOf } from "../number-flags.ts";
import { type Column, printRow, printRows } from "../output/rows.ts";

const COLUMNS: readonly Column<Queue>[] = [
  { header: "NAME", value: ({ name }) => name },
  { header: "STRATEGY", value: ({ strategy }) => strategy },
  { header: "LENGTH", value: ({ length }) => String(length) },
  { header: "MAX LENGTH", value: ({ max_length: max }) => (max === null ? "" : String(max)) },
];

/** `heddle queues list`. */
export async function listQueues(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const queues: Queue[] = [];
  for await (const queue of heddle.queues.list()) queues.push(queue);
  printRows(queues, COLUMNS, format, data);
  return 0;
}

/** `heddle queues set <name>`. */
export async function setQueueCommand(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const flags = command.opts() as { strategy?: QueueSettings["strategy"]; maxLength?: string };
  const { strategy, maxLength } = flags;
  const max =
    maxLength === undefined ? {} : { max_length: wholeNumberOf("--max-length", maxLength) };
  const settings = { ...(strategy === undefined ? {} : { strategy }), ...max };
  printRow(await heddle.queues.set(command.args[0] ?? "", settings), COLUMNS, format, data);
  return 0;
}
