import { checkText, cut, fault, quoted } from "./data-files.ts";
import type { Table } from "./npy-file.ts";

/**
 * Comma-separated numbers under a header of names (RFC 4180). Throws an AppError `invalid_value` that
 * names the file, and the row (the header is row 1) and column of a bad cell.
 */
export function readCsv(path: string, bytes: Buffer): Table {
  checkText(path, bytes);
  const text = bytes.toString("utf8").replace(/^\uFEFF/, "");
  if (text.trim() === "") throw fault(path, "is empty: its first line must name the columns");
  const lines = text.split(/\r?\n/);
  const records = recordsOf(path, lines);
  const names = records.next().value?.cells ?? [];
  if (names.every((name) => name !== "" && Number.isFinite(Number(name)))) {
    throw fault(path, "has no header: its first line must name the columns");
  }
  const rows: number[] = [];
  for (const { row, cells } of records) {
    if (cells.length !== names.length) {
      throw fault(path, `has ${cells.length} cells in row ${row}, and ${names.length} columns`);
    }
    for (const [column, cell] of cells.entries()) {
      const value = cell === "" ? Number.NaN : Number(cell);
      // As float32: a number that is finite as a double may be too large for that.
      const rounded = Math.fround(value);
      if (!Number.isFinite(rounded)) {
        const where = `row ${row}, column ${column + 1} (${cut(names[column] ?? "")})`;
        const what = Number.isFinite(value) ? "is too large for a float32" : "is not a number";
        throw fault(path, `has ${quoted(cell)} in ${where}, which ${what}`);
      }
      rows.push(rounded);
    }
  }
  return { path, names, columns: names.length, values: Float32Array.from(rows) };
}

interface CsvRecord {
  /** The line in which it begins, from 1. */
  readonly row: number;
  readonly cells: readonly string[];
}

/** Lines that are not empty, divided into cells; a quoted cell may span several lines. */
function* recordsOf(path: string, lines: readonly string[]): Generator<CsvRecord, undefined> {
  for (let at = 0; at < lines.length; at++) {
    const row = at + 1;
    let line = lines[at] ?? "";
    if (line.trim() === "") continue;
    if (!line.includes('"')) {
      yield { row, cells: line.split(",").map((cell) => cell.trim()) };
      continue;
    }
    const parts = [line];
    for (let quotes = quotesIn(line); quotes % 2 === 1; quotes += quotesIn(line)) {
      at++;
      if (at >= lines.length) throw fault(path, `has a quote in row ${row} that is never closed`);
      line = lines[at] ?? "";
      parts.push(line);
    }
    yield { row, cells: quotedCells(parts.join("\n")) };
  }
  return undefined;
}

function quotesIn(line: string): number {
  return line.split('"').length - 1;
}

/** The cells of a record: commas within quotes are text, and two quotes there are one. */
function quotedCells(record: string): string[] {
  const cells: string[] = [];
  let begin = 0;
  let isQuoted = false;
  for (let at = 0; at <= record.length; at++) {
    if (record[at] === '"') isQuoted = !isQuoted;
    if (at < record.length && (isQuoted || record[at] !== ",")) continue;
    const cell = record.slice(begin, at).trim();
    const quoted = /^"([\s\S]*)"$/.exec(cell)?.[1];
    cells.push(quoted === undefined ? cell : quoted.replaceAll('""', '"').trim());
    begin = at + 1;
  }
  return cells;
}
