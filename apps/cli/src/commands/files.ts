import { openAsBlob } from "node:fs";
import { basename, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { FileSpec } from "@heddle/client/resources/inference/files";
import type { ApiFile } from "@heddle/contracts/api/inference/files";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../command-context.ts";
import { watchInterrupts } from "../interrupt.ts";
import { wholeNumberOf } from "../number-flags.ts";
import { printDownload, saveDownload } from "../output/download.ts";
import { type Column, printChange, printRecord, printRows } from "../output/rows.ts";

const COLUMNS: readonly Column<ApiFile>[] = [
  { header: "ID", value: ({ id }) => id },
  { header: "NAME", value: ({ filename }) => filename },
  { header: "PURPOSE", value: ({ purpose }) => purpose },
  { header: "BYTES", value: ({ bytes }) => String(bytes) },
  { header: "CREATED", value: (file) => timeOf(file.created_at), wide: true },
  { header: "EXPIRES", value: (file) => timeOf(file.expires_at) || "never", wide: true },
];

/** `heddle files upload <file>`: prints the id alone on standard output, for `$(...)`. */
export async function uploadFile(command: Command): Promise<number> {
  const context = commandContext(command);
  const flags = command.opts<{ purpose: string; expiresAfter?: string }>();
  const { expiresAfter } = flags;
  const seconds = expiresAfter && wholeNumberOf("--expires-after", expiresAfter);
  const file = await upload(context, command.args[0] ?? "", {
    purpose: flags.purpose as FileSpec["purpose"],
    expiresAfterSeconds: seconds === "" ? undefined : seconds,
  });
  printRecord(file, file.id, context.format, context.data);
  return 0;
}

/** Stores a file of this machine. */
export async function upload(
  { heddle }: Pick<CommandContext, "heddle">,
  path: string,
  spec: Pick<FileSpec, "purpose" | "expiresAfterSeconds">,
): Promise<ApiFile> {
  const file = await openAsBlob(path).catch((cause: Error) => {
    throw new AppError("not_found", `${path} cannot be read: ${cause.message}`, { cause });
  });
  const interrupts = watchInterrupts();
  try {
    const { signal } = interrupts;
    return await heddle.files.create({ ...spec, file, filename: basename(path) }, { signal });
  } finally {
    interrupts.release();
  }
}

/** `heddle files list`. */
export async function listFiles(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { purpose } = command.opts<{ purpose?: ApiFile["purpose"] }>();
  const files: ApiFile[] = [];
  for (let after: string | undefined; ; ) {
    const page = await heddle.files.list({ ...(purpose && { purpose }), ...(after && { after }) });
    files.push(...page.data);
    if (!page.has_more || page.last_id === null) break;
    after = page.last_id;
  }
  printRows(files, COLUMNS, format, data);
  return 0;
}

/** `heddle files download <id>`. */
export async function fetchFile(command: Command): Promise<number> {
  const context = commandContext(command);
  const id = command.args[0] ?? "";
  const { outputFile } = command.opts<{ outputFile?: string }>();
  const file = await context.heddle.files.retrieve(id);
  const target = outputFile ?? basename(file.filename);
  const content = (signal?: AbortSignal) => bytesOf(context, file, signal);
  if (target === "-") {
    await printDownload(content);
    return 0;
  }
  await saveDownload(resolve(target), content);
  printRecord({ ...file, file: resolve(target) }, target, context.format, context.data);
  return 0;
}

/** `heddle files delete <id>`. */
export async function deleteFile(command: Command): Promise<number> {
  const context = commandContext(command);
  const id = command.args[0] ?? "";
  await context.heddle.files.delete(id);
  printChange(
    { record: { id, deleted: true }, name: id, sentence: `file ${id} is deleted` },
    context,
  );
  return 0;
}

/** Throws where the content ends before its size. */
async function* bytesOf(
  { heddle }: CommandContext,
  { id, bytes }: ApiFile,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  let received = 0;
  const response = await heddle.files.content(id, { signal });
  for await (const chunk of response.body ?? []) {
    received += chunk.byteLength;
    yield chunk;
  }
  if (received === bytes) return;
  const message = `The download of ${id} ended after ${received} of ${bytes} bytes: try again.`;
  throw new AppError("unavailable", message);
}

/** Seconds since the epoch as ISO 8601; empty for none. */
export function timeOf(seconds: number | null): string {
  return seconds === null ? "" : new Date(seconds * 1000).toISOString();
}
