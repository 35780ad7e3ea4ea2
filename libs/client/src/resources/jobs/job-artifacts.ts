import { ConnectionError, HeddleError } from "../../errors.ts";
import { pause, retryWaitMs } from "../../retry.ts";
import { aborted, type CallOptions, type HttpTransport } from "../../transport.ts";

/** Which artifact, if several ranks have one of that name. */
export interface DownloadOptions extends CallOptions {
  /** Absent: the lowest rank that has one. */
  readonly rank?: number | undefined;
}

/** Consecutive breaks without a byte between them after which a download fails. */
const MAX_BREAKS = 4;

/**
 * The bytes of an artifact, in order. An interrupted download resumes, on another master if there
 * is one. It fails if the file has changed.
 */
export async function* downloadArtifact(
  transport: HttpTransport,
  path: string,
  { rank, signal }: DownloadOptions,
): AsyncGenerator<Uint8Array, void> {
  let at = 0;
  let etag: string | undefined;
  for (let breaks = 0; ; ) {
    const headers = etag && at > 0 ? { range: `bytes=${at}-`, "if-range": etag } : undefined;
    const query = { rank };
    const response = await transport.open({ method: "GET", path, query, headers, signal });
    const current = response.headers.get("etag") ?? undefined;
    if (etag !== undefined && current !== etag) throw changed(path);
    etag = current;
    try {
      // A response with the whole file repeats what was read already.
      for await (const chunk of rest(response, response.status === 206 ? 0 : at)) {
        at += chunk.byteLength;
        breaks = 0;
        yield chunk;
      }
      return;
    } catch (cause) {
      if (signal?.aborted) throw aborted();
      breaks += 1;
      if (breaks > MAX_BREAKS) throw brokenOff(at, cause);
      transport.next();
      await pause(retryWaitMs(breaks, undefined, Math.random(), Date.now()) ?? 0, signal);
    }
  }
}

/** The body without its first bytes. Throws if it ends early. */
async function* rest({ body }: Response, skipped: number): AsyncGenerator<Uint8Array, void> {
  const reader = body?.getReader();
  if (!reader) return;
  let skip = skipped;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const kept = value.subarray(Math.min(skip, value.byteLength));
      skip -= value.byteLength - kept.byteLength;
      if (kept.byteLength > 0) yield kept;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function changed(path: string): HeddleError {
  const message = `${path} is another file than when its download began: start it again.`;
  return new HeddleError(message, { code: "conflict" });
}

function brokenOff(bytes: number, cause: unknown): ConnectionError {
  const message = `The download broke off after ${bytes} bytes.`;
  return new ConnectionError(message, { code: "unavailable", retryable: true, cause });
}
