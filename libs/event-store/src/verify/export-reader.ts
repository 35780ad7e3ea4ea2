import { AppError } from "@heddle/base/errors";
import { isJsonObject } from "@heddle/base/json-object";
import {
  type EarlierCheckpoint,
  EXPORT_FORMAT,
  type ExportedEntry,
  type ExportHead,
} from "../export/export-lines.ts";
import { HASH_BYTES } from "../merkle/sibling-sides.ts";
import { decodeBase64 } from "../notes/base64.ts";

/** A line of an export in its checked form. */
export type ReadLine =
  | { readonly kind: "head"; readonly head: ReadHead }
  | { readonly kind: "earlier"; readonly checkpoint: string; readonly proof: readonly Uint8Array[] }
  | { readonly kind: "entry"; readonly sequence: number; readonly data: Uint8Array };

export interface ReadHead {
  readonly first: number;
  readonly end: number;
  readonly checkpoint: string;
  readonly left: readonly Uint8Array[];
  readonly right: readonly Uint8Array[];
}

/** A range between two sizes below 2^53 is at most that many complete subtrees. */
const MAX_HASHES = 2 * 53;
/** The largest line has a note of 1,000,000 bytes. */
const MAX_LINE_CHARACTERS = 4_000_000;

/** The lines of a text. Throws `invalid_value` where one is too long. */
export async function* exportLinesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
    if (rest.length > MAX_LINE_CHARACTERS) {
      throw new AppError("invalid_value", "the export has a line that is too long");
    }
  }
  if (rest !== "") yield rest;
}

/** Throws `invalid_value` where the line is none of an export. */
export function readExportLine(line: string, number: number): ReadLine {
  const value = parsedObject(line, number);
  const { head, earlier, entry } = value as {
    readonly head?: ExportHead;
    readonly earlier?: EarlierCheckpoint;
    readonly entry?: ExportedEntry;
  };
  if (isJsonObject(head)) return { kind: "head", head: readHead(head, number) };
  if (isJsonObject(earlier)) {
    const proof = hashes(earlier.proof, number);
    return { kind: "earlier", checkpoint: text(earlier.checkpoint, number), proof };
  }
  if (!isJsonObject(entry)) throw malformed(number, "it is no head, earlier checkpoint or entry");
  const data = decodeBase64(text(entry.data, number));
  if (!data) throw malformed(number, "the data of its entry are no base64");
  return { kind: "entry", sequence: count(entry.sequence, number), data };
}

function readHead(head: ExportHead, number: number): ReadHead {
  if (head.format !== EXPORT_FORMAT) {
    throw malformed(
      number,
      `its format is ${String(head.format).slice(0, 40)}, not ${EXPORT_FORMAT}`,
    );
  }
  return {
    first: count(head.first, number),
    end: count(head.end, number),
    checkpoint: text(head.checkpoint, number),
    left: hashes(head.left, number),
    right: hashes(head.right, number),
  };
}

function parsedObject(line: string, number: number): object {
  if (line.length > MAX_LINE_CHARACTERS) throw malformed(number, "it is too long");
  try {
    const value: unknown = JSON.parse(line);
    if (isJsonObject(value)) return value;
  } catch {
    throw malformed(number, "it is no JSON");
  }
  throw malformed(number, "it is no JSON object");
}

function count(value: unknown, number: number): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
  throw malformed(number, "it lacks a sequence number");
}

function text(value: unknown, number: number): string {
  if (typeof value === "string") return value;
  throw malformed(number, "it lacks a text");
}

function hashes(value: unknown, number: number): Uint8Array[] {
  const list = Array.isArray(value) && value.length <= MAX_HASHES ? value : [undefined];
  return list.map((each: unknown) => {
    const hash = typeof each === "string" ? decodeBase64(each) : undefined;
    if (hash?.byteLength === HASH_BYTES) return hash;
    throw malformed(number, "it lacks a list of hashes");
  });
}

function malformed(number: number, why: string): AppError {
  return new AppError("invalid_value", `line ${number} is none of an export of events: ${why}`);
}
