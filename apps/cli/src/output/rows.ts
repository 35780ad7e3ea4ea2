import { type Terminal, visibleWidth } from "./terminal.ts";

export type RowFormat = "table" | "wide" | "json" | "yaml" | "name";

/** A column of a table; `wide` ones show only with `-o wide`. */
export interface Column<T> {
  readonly header: string;
  readonly value: (row: T) => string;
  readonly wide?: boolean;
}

/** Whether records are printed whole, for programs. */
export function isRecordFormat(format: RowFormat): format is "json" | "yaml" {
  return format === "json" || format === "yaml";
}

/**
 * Prints records in the requested format. `json` and `yaml` print them whole, as received; `name`
 * prints the first column alone, one per line.
 */
export function printRows<T>(
  rows: readonly T[],
  columns: readonly Column<T>[],
  format: RowFormat,
  out: Terminal,
): void {
  if (isRecordFormat(format)) printRecord(rows, "", format, out);
  else if (format === "name") out.write(rows.map((row) => `${columns[0]?.value(row)}\n`).join(""));
  else
    out.write(
      table(
        rows,
        columns.filter(({ wide }) => format === "wide" || !wide),
        out,
      ),
    );
}

/** Prints one record: whole as `json` and `yaml`, otherwise as a table of one row. */
export function printRow<T>(
  row: T,
  columns: readonly Column<T>[],
  format: RowFormat,
  out: Terminal,
): void {
  if (isRecordFormat(format)) printRecord(row, "", format, out);
  else printRows([row], columns, format, out);
}

/** Prints one record whole as `json` and `yaml`, otherwise its name alone. */
export function printRecord(record: unknown, name: string, format: RowFormat, out: Terminal): void {
  if (format === "json") out.write(`${JSON.stringify(record, null, 2)}\n`);
  else out.write(`${format === "yaml" ? toYaml(record) : name}\n`);
}

/** Prints one record of a stream: a line of JSON, or a YAML document. */
export function printStreamed(record: unknown, format: "json" | "yaml", out: Terminal): void {
  out.write(format === "json" ? `${JSON.stringify(record)}\n` : `---\n${toYaml(record)}\n`);
}

/** Where and in which format a command writes. */
interface Printing {
  readonly format: RowFormat;
  readonly data: Terminal;
  readonly messages: Terminal;
}

/** The result of a change: the record as received, its name, and one sentence for people. */
interface Change {
  readonly record: unknown;
  readonly name: string;
  readonly sentence: string;
}

/** Prints the record or the name as data if requested, otherwise the sentence as a message. */
export function printChange(
  { record, name, sentence }: Change,
  { format, data, messages }: Printing,
): void {
  if (format === "name" || isRecordFormat(format)) printRecord(record, name, format, data);
  else messages.write(`${sentence}\n`);
}

function table<T>(rows: readonly T[], columns: readonly Column<T>[], out: Terminal): string {
  const cells = rows.map((row) => columns.map(({ value }) => value(row) || "-"));
  const headers = columns.map(({ header }) => header);
  const widths = headers.map((header, i) =>
    Math.max(header.length, ...cells.map((row) => visibleWidth(row[i] ?? ""))),
  );
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => cell + " ".repeat((widths[i] ?? 0) - visibleWidth(cell)))
      .join("  ")
      .trimEnd();
  return [out.paint("bold", line(headers)), ...cells.map(line)].map((text) => `${text}\n`).join("");
}

/** YAML 1.2 in block style; scalars are JSON, which YAML includes, so no text is misread. */
function toYaml(value: unknown, indent = ""): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return value.map((item) => `${indent}- ${toYaml(item, `${indent}  `).trimStart()}`).join("\n");
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    if (entries.length === 0) return "{}";
    return entries
      .map(([key, item]) => `${indent}${yamlKey(key)}:${nested(item, indent)}`)
      .join("\n");
  }
  return JSON.stringify(value) ?? "null";
}

function yamlKey(key: string): string {
  return /^[A-Za-z_][\w-]*$/.test(key) ? key : JSON.stringify(key);
}

function nested(value: unknown, indent: string): string {
  const isBlock = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  return isBlock ? `\n${toYaml(value, `${indent}  `)}` : ` ${toYaml(value)}`;
}
