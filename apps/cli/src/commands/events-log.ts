import { AppError } from "@heddle/base/errors";
import type { EventLogOptions } from "@heddle/client/resources/cluster/events";
import type { LogEvent } from "@heddle/contracts/api/events/log";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { watchInterrupts } from "../interrupt.ts";
import { wholeNumberOf } from "../number-flags.ts";
import { type Column, isRecordFormat, printRows, printStreamed } from "../output/rows.ts";
import { drained } from "../output/terminal.ts";

const COLUMNS: readonly Column<LogEvent>[] = [
  { header: "SEQUENCE", value: ({ sequence }) => sequence },
  { header: "TIME", value: ({ time }) => time },
  { header: "TYPE", value: ({ type }) => type },
  { header: "SUBJECT", value: ({ subject }) => subject },
  { header: "RESULT", value: ({ result }) => result ?? "" },
  { header: "USER", value: ({ userid }) => userid ?? "" },
  { header: "PROJECT", value: ({ project }) => project ?? "", wide: true },
  { header: "ADDRESS", value: ({ clientaddress }) => clientaddress ?? "", wide: true },
  { header: "REQUEST", value: ({ requestid }) => requestid ?? "", wide: true },
];

/** `heddle events list`. */
export async function listEvents(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const flags = command.opts<EventLogOptions & { newest?: true; limit: string; until?: string }>();
  const { newest, limit, ...filters } = flags;
  const most = wholeNumberOf("--limit", limit);
  const order = newest ? "desc" : "asc";
  const events: LogEvent[] = [];
  if (most === 0) throw new AppError("invalid_value", "--limit 0: give at least 1.");
  const query = { ...filters, order, limit: Math.min(most, 1_000) } as const;
  for await (const event of heddle.events.query(query)) {
    if (events.push(event) === most) break;
  }
  printRows(events, COLUMNS, format, data);
  return 0;
}

/** `heddle events follow`: a line for each event. */
export async function followEvents(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const interrupts = watchInterrupts();
  try {
    const { signal } = interrupts;
    for await (const event of heddle.events.follow({
      ...command.opts<EventLogOptions>(),
      signal,
    })) {
      if (isRecordFormat(format)) printStreamed(event, format, data);
      else data.write(lineOf(event));
      await drained(process.stdout, signal);
    }
    return 0;
  } finally {
    interrupts.release();
  }
}

function lineOf({ sequence, time, type, subject, result = "", userid = "" }: LogEvent): string {
  return `${[sequence, time, type, subject, result, userid].join("  ").trimEnd()}\n`;
}
