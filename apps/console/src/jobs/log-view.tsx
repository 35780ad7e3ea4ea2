import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { STRINGS } from "../strings.ts";
import { formatBytes } from "../ui/format.ts";
import type { ShownLine } from "./log-buffer.ts";

interface LogViewOptions {
  readonly lines: readonly ShownLine[];
  readonly hasRanks: boolean;
  readonly isFollowed: boolean;
  readonly onFollow: (isFollowed: boolean) => void;
  readonly isLoading: boolean;
}

const LINE_PX = 18;
/** Nearer to the end than this is at the end. */
const END_PX = 4;

/** Lines of any number, of which those in view are in the document; it follows the last one. */
export function LogView(options: LogViewOptions) {
  const { lines, hasRanks, isFollowed, onFollow, isLoading } = options;
  const scroller = useRef<HTMLElement>(null);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_PX,
    overscan: 40,
  });
  const lastTop = useRef(0);
  const last = lines.at(-1)?.number;
  useEffect(() => {
    const element = scroller.current;
    if (isFollowed && last !== undefined && element) element.scrollTop = element.scrollHeight;
  }, [isFollowed, last]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = scroller.current!;
    const isAtEnd = scrollHeight - clientHeight - scrollTop <= END_PX;
    // New lines move the end, and only a reader moves the view.
    const isMovedUp = scrollTop < lastTop.current;
    lastTop.current = scrollTop;
    if (!isAtEnd && isFollowed && isMovedUp) onFollow(false);
  };
  return (
    <section
      ref={scroller}
      className="log"
      aria-label={STRINGS.logs.label}
      tabIndex={0}
      onScroll={onScroll}
    >
      {lines.length === 0 && (
        <p className="muted">{isLoading ? STRINGS.common.loading : STRINGS.logs.empty}</p>
      )}
      <div className="log-body" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map(({ index, start }) => (
          <Line key={lines[index]!.number} line={lines[index]!} hasRanks={hasRanks} topPx={start} />
        ))}
      </div>
    </section>
  );
}

interface LineOptions {
  readonly line: ShownLine;
  readonly hasRanks: boolean;
  readonly topPx: number;
}

function Line({ line, hasRanks, topPx }: LineOptions) {
  const { rank, isError, gapBytes, text } = line;
  return (
    <div
      className={isError ? "log-line log-error" : "log-line"}
      style={{ transform: `translateY(${topPx}px)` }}
    >
      {hasRanks && <span className="log-rank">{STRINGS.logs.rank(rank)}</span>}
      {gapBytes === undefined ? text : STRINGS.logs.gap(formatBytes(gapBytes))}
    </div>
  );
}
