import type { ByteRange } from "./checked-bytes.ts";

/**
 * What a `Range` header asks of so many bytes: undefined for all of them, as for a header of another
 * form or of several ranges (RFC 9110), and `unsatisfiable` where no byte is in it.
 */
export function byteRange(
  header: string | undefined,
  bytes: number,
): ByteRange | undefined | "unsatisfiable" {
  const [, from = "", to = ""] = /^bytes=(\d*)-(\d*)$/.exec(header?.trim() ?? "") ?? [];
  if (from === "" && to === "") return undefined;
  if (from === "") {
    const last = Math.min(Number(to), bytes);
    return last === 0 ? "unsatisfiable" : { offset: bytes - last, maxBytes: last };
  }
  const offset = Number(from);
  const end = to === "" ? bytes : Math.min(bytes, Number(to) + 1);
  if (to !== "" && Number(to) < offset) return undefined;
  return offset >= bytes ? "unsatisfiable" : { offset, maxBytes: end - offset };
}
