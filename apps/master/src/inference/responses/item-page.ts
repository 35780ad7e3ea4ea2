import { AppError } from "@heddle/base/errors";
import type { ItemList, ResponseItem } from "@heddle/contracts/api/responses/items";
import type { ItemsQuery } from "@heddle/contracts/api/responses/operations";

/** A page of the items, oldest first; one that is there several times, by references, is listed once. */
export function itemPage(
  items: readonly ResponseItem[],
  { limit, order, after }: ItemsQuery,
): ItemList {
  const unique = [...new Map(items.map((item) => [item.id, item])).values()];
  const ordered = order === "asc" ? unique : unique.reverse();
  const last = after === undefined ? -1 : ordered.findIndex(({ id }) => id === after);
  if (after !== undefined && last < 0) {
    const message = `Invalid value for 'after': no item of the list has the id '${after}'.`;
    throw new AppError("invalid_value", message, { param: "after" });
  }
  const data = ordered.slice(last + 1, last + 1 + limit);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: last + 1 + limit < ordered.length,
  };
}
