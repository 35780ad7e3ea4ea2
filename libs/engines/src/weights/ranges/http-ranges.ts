import type { IncomingMessage } from "node:http";
import { guardedGet, type RequestContext, statusFault } from "../guarded-request.ts";
import { PermanentFault, reasonOf, SourceFault } from "../source-fault.ts";
import { NoRanges, type RangeSource } from "./range-source.ts";

/** A file on a web server. */
export interface RemoteFile {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
}

/** Ranges of a file on a web server (RFC 9110, 14), each by a guarded request. */
export function httpRanges(
  name: string,
  locate: (signal: AbortSignal) => Promise<RemoteFile>,
  context: Omit<RequestContext, "signal">,
): RangeSource & { size(signal: AbortSignal): Promise<number> } {
  let located: Promise<RemoteFile> | undefined;
  const find = (signal: AbortSignal) => {
    located ??= locate(signal).catch((error: unknown) => {
      located = undefined;
      throw error;
    });
    return located;
  };
  const get = async (offset: number, bytes: number, signal: AbortSignal) => {
    const { url, headers } = await find(signal);
    const range = `bytes=${offset}-${offset + bytes - 1}`;
    const response = await guardedGet(url, { ...headers, range }, { ...context, signal });
    try {
      return { response, total: checkedTotal(response, url, offset) };
    } catch (error) {
      response.destroy();
      // A token of a registry may have ended.
      if (response.statusCode === 401) located = undefined;
      throw error;
    }
  };
  return {
    name,
    async size(signal) {
      const { response, total } = await get(0, 1, signal);
      response.destroy();
      return total;
    },
    async *read(offset, bytes, signal) {
      const { response } = await get(offset, bytes, signal);
      try {
        for await (const chunk of response as AsyncIterable<Buffer>) yield chunk;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof SourceFault) throw error;
        throw new SourceFault(`the connection broke: ${reasonOf(error)}`, { cause: error });
      } finally {
        response.destroy();
      }
    },
  };
}

/** The size of the whole file, from an answer that begins where it was asked to. */
function checkedTotal(response: IncomingMessage, url: URL, offset: number): number {
  if (response.statusCode === 200) throw new NoRanges(`${url.host} gives no ranges of files`);
  if (response.statusCode !== 206) throw statusFault(response, url);
  const header = response.headers["content-range"] ?? "";
  const [, start, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(header) ?? [];
  if (total === undefined || Number(start) !== offset) {
    throw new PermanentFault(`${url.host} answers with the range "${header.slice(0, 80)}"`);
  }
  return Number(total);
}
