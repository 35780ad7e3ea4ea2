/** A point of a series: milliseconds or a step, and the value there. */
export interface SeriesPoint {
  readonly x: number;
  readonly y: number;
}

/** The extremes of neighbouring points. */
interface Stretch {
  low: SeriesPoint;
  high: SeriesPoint;
  count: number;
}

const MAX_STRETCHES = 640;

/** A series of any length in bounded memory: of long ones it keeps the extremes of stretches. */
export class Series {
  #stretches: Stretch[] = [];
  /** Points of a full stretch. */
  #width = 1;
  first: SeriesPoint | undefined;
  last: SeriesPoint | undefined;

  static of(points: Iterable<SeriesPoint>): Series {
    const series = new Series();
    for (const point of points) series.add(point);
    return series;
  }

  /** Adds a point after the last one. One before it takes the place of those from there on. */
  add(point: SeriesPoint): void {
    if (this.last && point.x < this.last.x) this.#forgetFrom(point.x);
    this.first ??= point;
    this.last = point;
    const open = this.#stretches.at(-1);
    if (open && open.count < this.#width) {
      join(open, { low: point, high: point, count: 1 });
      return;
    }
    if (this.#stretches.length === MAX_STRETCHES) this.#halve();
    this.#stretches.push({ low: point, high: point, count: 1 });
  }

  /** The points to draw, in their order: no peak is missing. */
  get points(): readonly SeriesPoint[] {
    const drawn = this.#stretches.flatMap(({ low, high }) => {
      if (low === high) return low;
      return low.x < high.x ? [low, high] : [high, low];
    });
    const { last } = this;
    if (last && drawn.at(-1) !== last) drawn.push(last);
    return drawn;
  }

  #forgetFrom(x: number): void {
    this.#stretches = this.#stretches.filter(({ low, high }) => Math.max(low.x, high.x) < x);
    if (this.first && this.first.x >= x) this.first = undefined;
  }

  #halve(): void {
    const joined: Stretch[] = [];
    for (const [at, stretch] of this.#stretches.entries()) {
      if (at % 2 === 0) joined.push(stretch);
      else join(joined.at(-1)!, stretch);
    }
    this.#stretches = joined;
    this.#width *= 2;
  }
}

function join(into: Stretch, { low, high, count }: Stretch): void {
  if (low.y < into.low.y) into.low = low;
  if (high.y > into.high.y) into.high = high;
  into.count += count;
}
