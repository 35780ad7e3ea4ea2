import { STRINGS } from "../strings.ts";

/** A point of a series: milliseconds or a step, and the value there. */
export interface SeriesPoint {
  readonly x: number;
  readonly y: number;
}

const WIDTH = 640;
const HEIGHT = 140;
const PAD = 6;
/** More points than the chart has columns are drawn as the extremes of each column. */
const MAX_DRAWN = WIDTH * 2;

interface SeriesChartOptions {
  readonly label: string;
  readonly points: readonly SeriesPoint[];
  readonly format: (value: number) => string;
}

/** A line over its range, with the least, the greatest and the latest value as text. */
export function SeriesChart({ label, points, format }: SeriesChartOptions) {
  const last = points.at(-1);
  if (!last) return null;
  const drawn = thinned(points);
  const { least, greatest } = rangeOf(drawn);
  const first = points[0]!.x;
  const spanX = Math.max(1e-9, last.x - first);
  const spanY = Math.max(1e-9, greatest - least);
  const path = drawn
    .map(({ x, y }) => {
      const left = PAD + ((x - first) / spanX) * (WIDTH - 2 * PAD);
      const top = HEIGHT - PAD - ((y - least) / spanY) * (HEIGHT - 2 * PAD);
      return `${left.toFixed(1)},${top.toFixed(1)}`;
    })
    .join(" ");
  return (
    <figure className="chart">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" preserveAspectRatio="none">
        <title>{label}</title>
        <polyline points={path} />
      </svg>
      <figcaption>
        <span>{STRINGS.common.least(format(least))}</span>
        <strong>{STRINGS.common.latest(format(last.y))}</strong>
        <span>{STRINGS.common.greatest(format(greatest))}</span>
      </figcaption>
    </figure>
  );
}

/** Keeps the extremes of each column, so that no peak is lost. */
function thinned(points: readonly SeriesPoint[]): readonly SeriesPoint[] {
  if (points.length <= MAX_DRAWN) return points;
  const size = Math.ceil((2 * points.length) / MAX_DRAWN);
  const kept: SeriesPoint[] = [];
  for (let from = 0; from < points.length; from += size) {
    let low = points[from]!;
    let high = low;
    for (let at = from; at < Math.min(points.length, from + size); at++) {
      const point = points[at]!;
      if (point.y < low.y) low = point;
      if (point.y > high.y) high = point;
    }
    kept.push(...(low.x <= high.x ? [low, high] : [high, low]));
  }
  return kept;
}

function rangeOf(points: readonly SeriesPoint[]): { least: number; greatest: number } {
  let least = Infinity;
  let greatest = -Infinity;
  for (const { y } of points) {
    if (y < least) least = y;
    if (y > greatest) greatest = y;
  }
  return { least, greatest };
}
