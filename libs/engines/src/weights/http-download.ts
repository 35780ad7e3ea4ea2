import { open, readFile, rm, stat, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { Backoff } from "@heddle/base/backoff";
import { guardedGet, type RequestContext, statusFault } from "./guarded-request.ts";
import { PermanentFault, reasonOf, SourceFault, UnreachableFault } from "./source-fault.ts";
import { writeAt } from "./write-at.ts";

/** One file to get over HTTP. */
export interface Download {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** Names the content across attempts and processes; the URL without what changes per request. */
  readonly identity: string;
  /** Where the bytes go; what is there from before is resumed if it is of the same content. */
  readonly partPath: string;
  /** The file's size, where it is known; a longer or shorter one is refused. */
  readonly sizeBytes: number | undefined;
  /** True where a digest will be checked, so that resuming without an ETag is safe. */
  readonly digestKnown: boolean;
  onProgress(pulledBytes: number, totalBytes: number): void;
  /** Throws where the disk cannot hold the file. */
  ensureSpace(neededBytes: number): Promise<void>;
}

/** Resumes in all of one pull, however little each of them gains. */
const MAX_RESUMES = 1_000;

/** Kept beside the part so that a later pull knows what it would resume. */
interface PartState {
  readonly identity: string;
  /** A strong entity tag (RFC 9110, 8.8.3), or empty. */
  readonly etag: string;
}

/**
 * Downloads into `partPath`, resuming after a cut as often as bytes come, and at most
 * `maxAttempts` times in a row without any. The part stays where it is on failure and on abort.
 */
export async function downloadFile(download: Download, context: RequestContext): Promise<void> {
  const { limits, signal } = context;
  const backoff = new Backoff({ baseMs: limits.retryBaseMs, maxMs: limits.retryMaxMs });
  let everReached = false;
  let resumes = 0;
  for (let attempt = 1; ; attempt++) {
    const before = await sizeOf(download.partPath);
    try {
      await downloadOnce(download, context);
      return;
    } catch (error) {
      signal.throwIfAborted();
      const gained = (await sizeOf(download.partPath)) > before;
      everReached ||= gained || !(error instanceof UnreachableFault);
      if (gained) {
        attempt = 0;
        backoff.reset();
      }
      const hopeless = error instanceof PermanentFault || !(error instanceof SourceFault);
      const spent = attempt >= limits.maxAttempts || ++resumes > MAX_RESUMES;
      if (hopeless || !everReached || spent) throw error;
      await sleep(backoff.nextMs(), undefined, { signal });
    }
  }
}

/** Removes a part, so that the next download starts from nothing. */
export async function discardPart(partPath: string): Promise<void> {
  await rm(partPath, { force: true });
  await rm(statePath(partPath), { force: true });
}

async function downloadOnce(download: Download, context: RequestContext): Promise<void> {
  const resume = await resumePoint(download);
  const response = await guardedGet(
    download.url,
    { ...download.headers, ...rangeHeaders(resume) },
    context,
  );
  try {
    const start = startOf(response, resume.offset, download);
    if (start === undefined) return;
    const total = totalOf(response, start, download, context.limits.maxBytes);
    await download.ensureSpace((total || start) - start);
    const state: PartState = { identity: download.identity, etag: strongEtag(response) };
    await writeFile(statePath(download.partPath), JSON.stringify(state));
    await receive(response, start, total, download, context);
  } finally {
    response.destroy();
  }
}

async function resumePoint(download: Download): Promise<{ offset: number; etag: string }> {
  const nothing = { offset: 0, etag: "" };
  const offset = await sizeOf(download.partPath);
  if (offset === 0) return nothing;
  try {
    const state = JSON.parse(await readFile(statePath(download.partPath), "utf8")) as PartState;
    const sameContent = state.identity === download.identity;
    const resumable = state.etag !== "" || download.digestKnown;
    return sameContent && resumable ? { offset, etag: state.etag } : nothing;
  } catch {
    // Without its state a part may be another file's, so it is overwritten.
    return nothing;
  }
}

function rangeHeaders(resume: { offset: number; etag: string }): Record<string, string> {
  if (resume.offset === 0) return {};
  const range = { range: `bytes=${resume.offset}-` };
  return resume.etag === "" ? range : { ...range, "if-range": resume.etag };
}

/** The offset at which the response's body goes; undefined where the part is whole already. */
function startOf(
  response: IncomingMessage,
  offset: number,
  download: Download,
): number | undefined {
  const contentRange = /^bytes (?:(\d+)-\d+|\*)\/(\d+|\*)$/.exec(
    response.headers["content-range"] ?? "",
  );
  if (response.statusCode === 200) return 0;
  if (response.statusCode === 206 && Number(contentRange?.[1]) === offset) return offset;
  if (response.statusCode === 416 && offset > 0 && Number(contentRange?.[2]) === offset) {
    return undefined;
  }
  throw statusFault(response, download.url);
}

/** The whole file's size in bytes, 0 where it is not known; throws where it is not acceptable. */
function totalOf(
  response: IncomingMessage,
  start: number,
  download: Download,
  maxBytes: number,
): number {
  const length = response.headers["content-length"];
  const total = length === undefined ? 0 : start + Number(length);
  const expected = download.sizeBytes;
  if (expected !== undefined && total > 0 && total !== expected) {
    throw new PermanentFault(`the file has ${total} bytes instead of ${expected}`);
  }
  if (total > maxBytes) throw tooLarge(maxBytes);
  return total || expected || 0;
}

async function receive(
  response: IncomingMessage,
  start: number,
  total: number,
  download: Download,
  context: RequestContext,
): Promise<void> {
  const file = await open(download.partPath, start === 0 ? "w" : "r+");
  const most = download.sizeBytes ?? context.limits.maxBytes;
  let at = start;
  try {
    download.onProgress(at, total);
    for await (const chunk of response as AsyncIterable<Buffer>) {
      if (at + chunk.length > most) throw tooLarge(most);
      await writeAt(file, chunk, at);
      at += chunk.length;
      download.onProgress(at, total);
    }
  } catch (error) {
    context.signal.throwIfAborted();
    if (error instanceof SourceFault || isDiskError(error)) throw error;
    throw new SourceFault(`the connection broke at byte ${at}: ${reasonOf(error)}`, {
      cause: error,
    });
  } finally {
    await file.close();
  }
  if (total > 0 && at !== total)
    throw new SourceFault(`the answer ended at byte ${at} of ${total}`);
}

function isDiskError(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return ["ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES", "EFBIG"].includes(code ?? "");
}

function tooLarge(bytes: number): PermanentFault {
  return new PermanentFault(`the file is larger than ${bytes} bytes`);
}

function strongEtag(response: IncomingMessage): string {
  const { etag } = response.headers;
  return etag === undefined || etag.startsWith("W/") ? "" : etag;
}

function statePath(partPath: string): string {
  return `${partPath}.json`;
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    // There is no part yet.
    return 0;
  }
}
