import { AppError } from "@heddle/base/errors";
import type { Page } from "@heddle/contracts/api/parameters";

/**
 * JSON bytes of a page, which is built in one turn of the event loop; the last item may exceed it.
 */
export const MAX_PAGE_BYTES = 512 * 1024;

/** The page of `limit` and `cursor`, which names the last item seen. */
export function pageOf<T extends { readonly id: string }>(
  items: readonly T[],
  { limit, cursor: after }: { readonly limit: number; readonly cursor?: string | undefined },
): Page<T> {
  const from = startOf(items, after);
  const data = withinBytes(items.slice(from, from + limit));
  const hasMore = from + data.length < items.length;
  const last = data.at(-1);
  const cursor = hasMore && last ? Buffer.from(`id:${last.id}`).toString("base64url") : null;
  return { object: "list", data, has_more: hasMore, next_cursor: cursor };
}

/** In UTF-8. */
export function jsonBytes(item: unknown): number {
  return Buffer.byteLength(JSON.stringify(item));
}

/** The leading items up to the page's bound in bytes. */
function withinBytes<T>(items: readonly T[]): T[] {
  let bytes = 0;
  const full = items.findIndex((item) => {
    bytes += jsonBytes(item);
    return bytes >= MAX_PAGE_BYTES;
  });
  return full < 0 ? [...items] : items.slice(0, full + 1);
}

function startOf(items: readonly { readonly id: string }[], cursor: string | undefined): number {
  if (cursor === undefined) return 0;
  const text = Buffer.from(cursor, "base64url").toString();
  const index = items.findIndex(({ id }) => `id:${id}` === text);
  if (index >= 0) return index + 1;
  throw new AppError("invalid_value", "Invalid value for 'cursor': it is not from this list.", {
    param: "cursor",
  });
}
