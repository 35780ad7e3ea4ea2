import type { ByteRange } from "./checked-bytes.ts";

/**
 * Evaluates a `Range` header for this size. Undefined for the whole, as for other or multiple
 * ranges (RFC 9110); `unsatisfiable` for a range without bytes.
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
