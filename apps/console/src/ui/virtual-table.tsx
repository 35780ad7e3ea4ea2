import { useVirtualizer } from "@tanstack/react-virtual";
import {
  type CSSProperties,
  memo,
  type ReactNode,
  type RefObject,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
} from "react";
import { elementKeys, NO_ELEMENTS } from "./element-keys.ts";

export interface TableColumn<Row> {
  readonly title: string;
  /** A track of CSS grid, as `minmax(8rem, 2fr)`. */
  readonly width: string;
  /** An element with a state of its own needs a key: after a jump it shows another row. */
  readonly cell: (row: Row) => ReactNode;
  readonly isNumber?: boolean;
}

export interface VirtualTableOptions<Row> {
  /** For assistive technology. */
  readonly label: string;
  readonly columns: readonly TableColumn<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  /** Shown in place of rows. */
  readonly empty: ReactNode;
  /** Called when the last row is in view. */
  readonly onEnd?: (() => void) | undefined;
}

const ROW_PX = 40;
/** Extra rows beyond each edge; few, since a jump redraws all rows. */
const OVERSCAN = 4;

/** A table of any length, of which only the rows in view are in the document. */
export function VirtualTable<Row>(options: VirtualTableOptions<Row>) {
  const { label, columns, rows, keyOf, empty, onEnd } = options;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: OVERSCAN,
  });
  const items = virtual.getVirtualItems();
  const isAtEnd = (items.at(-1)?.index ?? -1) >= rows.length - 1;
  useEffect(() => {
    if (isAtEnd) onEnd?.();
  }, [isAtEnd, onEnd]);
  const keys = useElementKeys(
    scroller,
    items.map(({ index }) => keyOf(rows[index]!)),
  );
  const style = useMemo(
    () => ({ gridTemplateColumns: columns.map(({ width }) => width).join(" ") }),
    [columns],
  );
  return (
    <div className="table-scroller" ref={scroller} tabIndex={0}>
      <div className="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
        <div role="rowgroup" className="table-head">
          <div role="row" className="table-row" aria-rowindex={1} style={style}>
            {columns.map(({ title, isNumber }) => (
              <div role="columnheader" key={title} className={isNumber ? "number" : undefined}>
                {title}
              </div>
            ))}
          </div>
        </div>
        <div
          role="rowgroup"
          className="table-body"
          style={{ height: virtual.getTotalSize(), paddingTop: items[0]?.start ?? 0 }}
        >
          {items.map(({ index }) => {
            const row = rows[index]!;
            const key = keys.get(keyOf(row));
            return <TableRow key={key} row={row} at={index} columns={columns} style={style} />;
          })}
        </div>
      </div>
      {rows.length === 0 && <div className="empty">{empty}</div>}
    </div>
  );
}

function useElementKeys(scroller: RefObject<HTMLElement | null>, rows: readonly string[]) {
  const elements = useRef(NO_ELEMENTS);
  elements.current = elementKeys(rows, elements.current);
  const { keys, jumps } = elements.current;
  useLayoutEffect(() => {
    // The focus must not go to another row with its element, but the keys that scroll must work on.
    const { current: list } = scroller;
    const { activeElement: focused } = document;
    if (jumps > 0 && focused !== list && list?.contains(focused))
      list.focus({ preventScroll: true });
  }, [jumps, scroller]);
  return keys;
}

interface TableRowOptions<Row> extends Pick<VirtualTableOptions<Row>, "columns"> {
  readonly row: Row;
  readonly at: number;
  readonly style: CSSProperties;
}

/** A row that stays in view is not drawn again. */
const TableRow = memo(function TableRow<Row>({ row, at, columns, style }: TableRowOptions<Row>) {
  return (
    <div role="row" className="table-row" aria-rowindex={at + 2} style={style}>
      {columns.map(({ title, cell, isNumber }) => (
        <div role="cell" key={title} className={isNumber ? "number" : undefined}>
          {cell(row)}
        </div>
      ))}
    </div>
  );
}) as <Row>(options: TableRowOptions<Row>) => ReactNode;
