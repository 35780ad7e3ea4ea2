import { AppError, toAppError } from "@heddle/base/errors";
import { isJsonObject } from "@heddle/base/json-object";
import type { BatchError } from "@heddle/contracts/api/inference/batches";
import { parseJsonBody } from "../../http/json-body.ts";
import type { OpenFile } from "../files/file-store.ts";

/** OpenAI's bound on the lines of a batch. */
const MAX_LINES = 50_000;
/** Faults that a batch lists. */
const MAX_FAULTS = 100;
const MAX_CUSTOM_ID_CHARS = 512;
/** What a line has beside the body of its call. */
const EXTRA_LINE_BYTES = 16_384;
const LINE_FEED = 0x0a;
/** Between two turns of the event loop. */
const STEP_BYTES = 1_048_576;

/** A line that is not blank. */
export interface InputLine {
  /** Among the lines that are not blank, from 0 on. */
  readonly index: number;
  /** In the file, from 1 on. */
  readonly number: number;
  readonly text: Buffer;
}

/** What a line asks for. */
export interface BatchLine {
  readonly customId: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** The lines of a file that are not blank. Throws a `LineFault` at one that is too long. */
export async function* linesOf(
  { file, read }: OpenFile,
  maxBodyBytes: number,
): AsyncGenerator<InputLine, void> {
  const maxBytes = maxBodyBytes + EXTRA_LINE_BYTES;
  let [index, number, sinceTurn] = [0, 1, 0];
  let rest: Buffer = Buffer.alloc(0);
  for await (const part of read(0, file.bytes)) {
    const bytes = Buffer.concat([rest, part]);
    let at = 0;
    for (let end = bytes.indexOf(LINE_FEED); end !== -1; end = bytes.indexOf(LINE_FEED, at)) {
      const text = bytes.subarray(at, end);
      at = end + 1;
      if (text.byteLength > maxBytes) throw tooLong(number, maxBytes);
      if (!isBlank(text)) yield { index: index++, number, text };
      number++;
      sinceTurn += text.byteLength;
      if (sinceTurn < STEP_BYTES) continue;
      sinceTurn = 0;
      await nextTurn();
    }
    rest = bytes.subarray(at);
    if (rest.byteLength > maxBytes) throw tooLong(number, maxBytes);
  }
  if (!isBlank(rest)) yield { index, number, text: rest };
}

/** What is wrong with the lines of a batch, and how many there are. */
export async function checkedLines(
  input: OpenFile,
  endpoint: string,
  maxBodyBytes: number,
): Promise<{ readonly total: number; readonly faults: readonly BatchError[] }> {
  const faults: BatchError[] = [];
  const seen = new Map<string, number>();
  let total = 0;
  try {
    for await (const line of linesOf(input, maxBodyBytes)) {
      total++;
      if (total > MAX_LINES) {
        const message = `A batch has at most ${MAX_LINES} lines: divide the file.`;
        throw new LineFault("too_many_lines", message, null, line.number);
      }
      try {
        const { customId } = batchLine(line, endpoint);
        const first = seen.get(customId);
        seen.set(customId, first ?? line.number);
        if (first === undefined) continue;
        const message = `The custom_id '${customId}' is that of line ${first} too: each line needs one of its own.`;
        throw new LineFault("duplicate_custom_id", message, "custom_id", line.number);
      } catch (thrown) {
        if (!(thrown instanceof LineFault)) throw thrown;
        faults.push(thrown.fault);
        if (faults.length >= MAX_FAULTS) return { total, faults };
      }
    }
  } catch (thrown) {
    if (!(thrown instanceof LineFault)) throw thrown;
    faults.push(thrown.fault);
  }
  if (total === 0 && faults.length === 0) {
    const message = "The file has no lines: write one JSON object a line.";
    faults.push({ code: "empty_file", message, param: "input_file_id", line: null });
  }
  return { total, faults };
}

/** What the line asks for. Throws a `LineFault`. */
export function batchLine({ text, number }: InputLine, endpoint: string): BatchLine {
  const fail = (code: string, message: string, param: string | null): never => {
    throw new LineFault(code, message, param, number);
  };
  const line = jsonOf(text, number);
  const { custom_id: customId, method, url, body } = line;
  for (const name of ["custom_id", "method", "url", "body"]) {
    if (line[name] != null) continue;
    fail("missing_required_parameter", `Missing required parameter: '${name}'.`, name);
  }
  if (typeof customId !== "string" || customId === "" || customId.length > MAX_CUSTOM_ID_CHARS) {
    const message = `Invalid value for 'custom_id': expected a text of up to ${MAX_CUSTOM_ID_CHARS} characters.`;
    return fail("invalid_value", message, "custom_id");
  }
  if (method !== "POST") fail("invalid_value", "Invalid value for 'method': use POST.", "method");
  if (typeof url !== "string" || pathOf(url) !== pathOf(endpoint)) {
    const message = `Invalid value for 'url': the batch is for ${endpoint}, and all its lines have that.`;
    fail("invalid_value", message, "url");
  }
  if (!isJsonObject(body)) {
    return fail("invalid_value", "Invalid value for 'body': expected an object.", "body");
  }
  const fields = body as Record<string, unknown>;
  for (const name of ["stream", "background"]) {
    if (fields[name] !== true) continue;
    const message = `Invalid value for 'body.${name}': a line of a batch has one whole answer.`;
    fail("invalid_value", message, `body.${name}`);
  }
  return { customId, body: fields };
}

/** The path of a call, as `/api/v1/embeddings`. */
export function pathOf(endpoint: string): string {
  return endpoint.startsWith("/api/") ? endpoint : `/api${endpoint}`;
}

/** Why a batch cannot run as its file is. */
class LineFault extends Error {
  override readonly name = "LineFault";
  readonly fault: BatchError;

  constructor(code: string, message: string, param: string | null, line: number) {
    super(message);
    this.fault = { code, message, param, line };
  }
}

function jsonOf(text: Buffer, number: number): Record<string, unknown> {
  try {
    return parseJsonBody(text);
  } catch (thrown) {
    if (!(thrown instanceof AppError)) throw thrown;
    const message = toAppError(thrown).message.replace("the body", "the line");
    throw new LineFault("invalid_json_line", message, null, number);
  }
}

function tooLong(number: number, maxBytes: number): LineFault {
  const message = `A line has at most ${maxBytes} bytes.`;
  return new LineFault("line_too_long", message, null, number);
}

function isBlank(text: Uint8Array): boolean {
  return text.every((byte) => byte === 0x20 || byte === 0x0d || byte === 0x09);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
