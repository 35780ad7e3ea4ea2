import { STRINGS } from "../strings.ts";
import type { Series, SeriesPoint } from "./series.ts";

const WIDTH = 640;
const HEIGHT = 140;
const PAD = 6;

interface SeriesChartOptions {
  readonly label: string;
  readonly series: Series;
  readonly format: (value: number) => string;
}

/** A line over its range, with the least, the greatest and the latest value as text. */
export function SeriesChart({ label, series, format }: SeriesChartOptions) {
  const { first, last, points } = series;
  if (!first || !last) return null;
  const { least, greatest } = rangeOf(points);
  const spanX = Math.max(1e-9, last.x - first.x);
  const spanY = Math.max(1e-9, greatest - least);
  const path = points
    .map(({ x, y }) => {
      const left = PAD + ((x - first.x) / spanX) * (WIDTH - 2 * PAD);
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

function rangeOf(points: readonly SeriesPoint[]): { least: number; greatest: number } {
  let least = Infinity;
  let greatest = -Infinity;
  for (const { y } of points) {
    if (y < least) least = y;
    if (y > greatest) greatest = y;
  }
  return { least, greatest };
}
