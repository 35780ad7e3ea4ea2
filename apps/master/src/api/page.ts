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
  const cursor = hasMore && last ? cursorAfter(last.id) : null;
  return { object: "list", data, has_more: hasMore, next_cursor: cursor };
}

interface IdPage {
  readonly ids: readonly string[];
  readonly next: string | null;
}

/**
 * The ids of a page in their order: items may come and go between two pages. Without `limit` and
 * `cursor` they are all, as given.
 */
export function idPageOf(
  ids: readonly string[],
  { limit, cursor }: { readonly limit?: number | undefined; readonly cursor?: string | undefined },
): IdPage {
  if (limit === undefined && cursor === undefined) return { ids, next: null };
  const after = cursor === undefined ? "" : idIn(cursor);
  const rest = ids.filter((id) => id > after).sort();
  const page = rest.slice(0, limit);
  return { ids: page, next: page.length < rest.length ? cursorAfter(page.at(-1)!) : null };
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
  const after = idIn(cursor);
  const index = items.findIndex(({ id }) => id === after);
  if (index >= 0) return index + 1;
  throw ofOtherList();
}

const CURSOR_START = "id:";

function cursorAfter(id: string): string {
  return Buffer.from(CURSOR_START + id).toString("base64url");
}

function idIn(cursor: string): string {
  const text = Buffer.from(cursor, "base64url").toString();
  if (text.startsWith(CURSOR_START)) return text.slice(CURSOR_START.length);
  throw ofOtherList();
}

function ofOtherList(): AppError {
  return new AppError("invalid_value", "Invalid value for 'cursor': it is not from this list.", {
    param: "cursor",
  });
}
