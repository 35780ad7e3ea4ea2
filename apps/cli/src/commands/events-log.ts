import { createWriteStream } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { isJsonObject } from "@heddle/base/json-object";
import type { EventLogOptions } from "@heddle/client/resources/cluster/events";
import type {
  CosignedCheckpoint,
  LogEvent,
  LoggedEvent,
  ShreddedSubject,
} from "@heddle/contracts/api/events/log";
import type { Command } from "commander";
import { wordsOf } from "../comma-list.ts";
import { commandContext } from "../command-context.ts";
import { watchInterrupts } from "../interrupt.ts";
import { wholeNumberOf } from "../number-flags.ts";
import {
  type Column,
  isRecordFormat,
  printRecord,
  printRow,
  printRows,
  printStreamed,
} from "../output/rows.ts";
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

interface LogFlags {
  readonly data: string;
  readonly subject?: string;
  readonly tags?: string;
  readonly source?: string;
  readonly id?: string;
  readonly stream?: string;
  readonly expectedRevision?: string;
  readonly compliance?: string;
  readonly about?: string;
}

/** `heddle events log <type>`. */
export async function logEvent(command: Command): Promise<number> {
  const { heddle, data: out, format } = commandContext(command);
  const [type = ""] = command.args;
  const { data, tags, expectedRevision, compliance, about, ...rest } = command.opts<LogFlags>();
  const audit = {
    ...(about !== undefined && { user_id: about }),
    ...(compliance !== undefined && { compliance_level: compliance }),
  };
  const logged = await heddle.events.log({
    type,
    data: objectOf(data),
    ...rest,
    ...(tags !== undefined && { tags: wordsOf(tags) }),
    ...(expectedRevision !== undefined && { expected_revision: revisionOf(expectedRevision) }),
    ...(Object.keys(audit).length > 0 && { audit }),
  });
  const columns: readonly Column<LoggedEvent>[] = [
    { header: "ID", value: ({ id }) => id },
    { header: "SOURCE", value: ({ source }) => source },
    { header: "REVISION", value: ({ revision }) => String(revision ?? "") },
    { header: "REPEATED", value: ({ repeated }) => (repeated ? "yes" : "no") },
  ];
  printRow(logged, columns, format, out);
  return 0;
}

/** `heddle events keys`: a line for each, as `heddle events verify` takes them. */
export async function printKeys(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { rotate } = command.opts<{ rotate?: true }>();
  const keys = rotate ? await heddle.events.rotateKey() : await heddle.events.keys();
  if (isRecordFormat(format)) printRecord(keys, keys.origin, format, data);
  else for (const key of keys.keys) data.write(`${key}\n`);
  return 0;
}

/** `heddle events shred <subject>`. */
export async function shredEvents(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const [subject = ""] = command.args;
  const shredded = await heddle.events.shred(subject);
  const columns: readonly Column<ShreddedSubject>[] = [{ header: "KEY", value: ({ id }) => id }];
  printRow(shredded, columns, format, data);
  return 0;
}

interface ExportFlags {
  readonly outputFile?: string;
  readonly cosigned?: true;
  readonly first?: string;
  readonly end?: string;
  readonly since?: string;
}

/** `heddle events cosign <size>`. */
export async function cosignEvents(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const [given = ""] = command.args;
  const { signatures: file } = command.opts<{ readonly signatures: string }>();
  const size = wholeNumberOf("SIZE", given);
  const signatures = readFlagFile("--signatures", file, "a file with lines of signatures");
  const cosigned = await heddle.events.cosign({ size, signatures });
  const columns: readonly Column<CosignedCheckpoint>[] = [
    { header: "SIZE", value: ({ size: of }) => String(of) },
    { header: "WITNESSES", value: ({ witnesses }) => witnesses.join(",") },
  ];
  printRow(cosigned, columns, format, data);
  return 0;
}

/** `heddle events export`: NDJSON with proofs. */
export async function exportEvents(command: Command): Promise<number> {
  const { heddle } = commandContext(command);
  const { outputFile = "-", cosigned, ...range } = command.opts<ExportFlags>();
  const sizes = Object.entries(range).map(([name, text]) => [
    name,
    wholeNumberOf(`--${name}`, text ?? ""),
  ]);
  const query = { ...Object.fromEntries(sizes), ...(cosigned && { cosigned }) };
  const response = await heddle.events.export(query);
  const body = Readable.fromWeb(response.body as ReadableStream);
  await pipeline(body, outputFile === "-" ? process.stdout : createWriteStream(outputFile));
  return 0;
}

function objectOf(text: string): Record<string, never> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (isJsonObject(value)) {
    return value as Record<string, never>;
  }
  throw new AppError("invalid_value", `--data "${text.slice(0, 100)}": give a JSON object.`);
}

function revisionOf(text: string): "any" | "none" | "exists" | number {
  if (text === "any" || text === "none" || text === "exists") return text;
  return wholeNumberOf("--expected-revision", text);
}
