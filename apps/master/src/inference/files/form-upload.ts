import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { Busboy, type BusboyInstance } from "@fastify/busboy";
import { AppError } from "@heddle/base/errors";

const FORM = "multipart/form-data";
const MAX_FIELDS = 16;
const MAX_FIELD_BYTES = 1_024;
/** Bytes of a refused body that are read and dropped, so that its sender can read the answer. */
const MAX_DROPPED_BYTES = 64 * 2 ** 20;
const DROP_MS = 10_000;

/** What a form had beside its file. */
export interface UploadedForm {
  readonly fields: Readonly<Record<string, string>>;
  readonly filename: string;
}

export interface UploadOptions {
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  /** Takes the bytes of `file` as they arrive; more are read when it resolves. */
  readonly take: (chunk: Uint8Array) => Promise<void>;
}

/** Whether the body is a form. */
export function isForm(headers: IncomingHttpHeaders): boolean {
  return (headers["content-type"] ?? "").toLowerCase().startsWith(FORM);
}

/** Reads a form with one file named `file`. After a refusal, some of the rest is dropped. */
export async function readUpload(
  message: IncomingMessage,
  options: UploadOptions,
): Promise<UploadedForm> {
  try {
    return await readForm(message, options);
  } catch (thrown) {
    await dropRest(message);
    throw thrown;
  }
}

async function readForm(
  message: IncomingMessage,
  { maxBytes, signal, take }: UploadOptions,
): Promise<UploadedForm> {
  const form = formOf(message.headers, maxBytes);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const fields: Record<string, string> = {};
  let filename: string | undefined;
  let storing: Promise<void> = Promise.resolve();
  form.on("field", (name, value) => {
    fields[name] = value;
  });
  form.on("file", (name, stream, given) => {
    if (name !== "file" || filename !== undefined) {
      stream.resume();
      reject(invalid(name, "the form has one file, named `file`"));
      return;
    }
    filename = given ?? "";
    storing = takeAll(stream, maxBytes, take);
    storing.catch(reject);
  });
  for (const limit of ["fieldsLimit", "filesLimit", "partsLimit"] as const) {
    form.on(limit, () =>
      reject(invalid("file", `the form has one file and up to ${MAX_FIELDS} fields`)),
    );
  }
  form.on("error", (error) =>
    reject(invalid("file", `the form cannot be read (${(error as Error).message})`)),
  );
  form.on("finish", resolve);
  const onClose = () => {
    if (!message.complete) reject(new AppError("cancelled", "The client closed the connection."));
  };
  const onAbort = () => reject(signal.reason);
  message.on("close", onClose);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    message.pipe(form);
    await promise;
    await storing;
  } finally {
    message.unpipe(form);
    message.off("close", onClose);
    signal.removeEventListener("abort", onAbort);
    // Ends the reader of a file that did not arrive whole.
    if (!form.writableFinished) form.destroy();
  }
  if (filename !== undefined) return { fields, filename };
  const text = "Missing required parameter: 'file'.";
  throw new AppError("missing_required_parameter", text, { param: "file" });
}

function formOf(headers: IncomingHttpHeaders, maxBytes: number): BusboyInstance {
  try {
    return new Busboy({
      headers: { ...headers, "content-type": headers["content-type"] ?? "" },
      limits: {
        files: 1,
        fields: MAX_FIELDS,
        fieldSize: MAX_FIELD_BYTES,
        fileSize: maxBytes + 1,
        parts: MAX_FIELDS + 1,
      },
    });
  } catch (error) {
    throw invalid("file", `the form cannot be read (${(error as Error).message})`);
  }
}

async function takeAll(
  stream: Readable,
  maxBytes: number,
  take: UploadOptions["take"],
): Promise<void> {
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.byteLength;
    if (bytes > maxBytes) throw tooLarge(maxBytes);
    await take(chunk);
  }
}

/** A file above the setting `file_mib`. */
export function tooLarge(maxBytes: number): AppError {
  const message = `A file has at most ${maxBytes / 2 ** 20} MiB: divide it, or have the cluster setting file_mib raised.`;
  return new AppError("request_too_large", message, { param: "file" });
}

function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}

function dropRest(message: IncomingMessage): Promise<void> {
  if (message.complete || message.destroyed) return Promise.resolve();
  const { promise, resolve } = Promise.withResolvers<void>();
  let bytes = 0;
  const onData = (chunk: Buffer) => {
    bytes += chunk.byteLength;
    if (bytes > MAX_DROPPED_BYTES) resolve();
  };
  const timer = setTimeout(resolve, DROP_MS);
  message.on("data", onData).on("end", resolve).on("close", resolve).resume();
  return promise.finally(() => {
    clearTimeout(timer);
    message.off("data", onData).off("end", resolve).off("close", resolve);
  });
}
