import type { Pages } from "@heddle/client/pages";
import { useInfiniteQuery } from "@tanstack/react-query";
import { STRINGS } from "../strings.ts";
import { PlainTable, type PlainTableOptions, type PlainTableRow, Waiting } from "./parts.tsx";

interface PagedTableOptions<Item> extends Omit<PlainTableOptions, "rows"> {
  /** The name of the query: what changes the list invalidates it. */
  readonly query: string;
  readonly list: (signal: AbortSignal) => Pages<Item>;
  readonly rowOf: (item: Item) => PlainTableRow;
}

/** A small table whose pages are read when they are asked for. */
export function PagedTable<Item>(options: PagedTableOptions<Item>) {
  const { label, head, query, list, rowOf } = options;
  const { data, error, fetchNextPage, hasNextPage } = useInfiniteQuery({
    queryKey: [query],
    queryFn: ({ signal, pageParam }) => list(signal).page(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next_cursor }) => next_cursor ?? undefined,
  });
  if (!data) return <Waiting error={error} />;
  const rows = data.pages.flatMap((page) => page.data).map(rowOf);
  return (
    <>
      <PlainTable label={label} head={head} rows={rows} />
      {rows.length === 0 && <p className="muted">{STRINGS.common.none}</p>}
      {hasNextPage && (
        <button type="button" onClick={() => void fetchNextPage()}>
          {STRINGS.common.more}
        </button>
      )}
    </>
  );
}
