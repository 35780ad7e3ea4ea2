import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useRef } from "react";

export interface TableColumn<Row> {
  readonly title: string;
  /** A track of CSS grid, as `minmax(8rem, 2fr)`. */
  readonly width: string;
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
/** Rows beyond each edge: few, since a jump of a screen makes all rows again. */
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
  const gridTemplateColumns = columns.map(({ width }) => width).join(" ");
  return (
    <div className="table-scroller" ref={scroller} tabIndex={0}>
      <div className="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
        <div role="rowgroup" className="table-head">
          <div role="row" className="table-row" aria-rowindex={1} style={{ gridTemplateColumns }}>
            {columns.map(({ title, isNumber }) => (
              <div role="columnheader" key={title} className={isNumber ? "number" : undefined}>
                {title}
              </div>
            ))}
          </div>
        </div>
        <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
          {items.map(({ index, start }) => (
            <div
              role="row"
              key={keyOf(rows[index]!)}
              className="table-row"
              aria-rowindex={index + 2}
              style={{ gridTemplateColumns, transform: `translateY(${start}px)` }}
            >
              {columns.map(({ title, cell, isNumber }) => (
                <div role="cell" key={title} className={isNumber ? "number" : undefined}>
                  {cell(rows[index]!)}
                </div>
              ))}
            </div>
          ))}
        </div>
      </div>
      {rows.length === 0 && <div className="empty">{empty}</div>}
    </div>
  );
}
