import type { JobMetrics, MetricPoint } from "@heddle/contracts/api/job-replies";
import {
  joinSummaries,
  type MetricRecord,
  type MetricSummary,
} from "@heddle/contracts/metrics/metric-record";

/** Names of one answer; further ones are left out. */
const MAX_NAMES = 256;
/** Curves of one answer, and the points of all of them. */
const MAX_CURVES = 64;
const MAX_POINTS = 8_000;
/** Points of a curve while it is read: a later run replaces a part of it to one of these. */
const MAX_READ_POINTS = 2_000;

/** Which numbers are asked for. */
export interface CurveQuery {
  /** Absent: all. */
  readonly names?: readonly string[] | undefined;
  /** The range of steps; both ends are in it. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  /** The most points of a curve; at least 2. */
  readonly points: number;
}

/** A task of one rank: attempts and replacements within an attempt follow one another. */
export interface MetricRun {
  readonly attempt: number;
  readonly incarnation: number;
}

interface Stretch extends MetricSummary {
  readonly first: number;
  readonly last: number;
  readonly unixMs: number;
}

/** One curve in bounded memory: neighbouring steps share a point once there are too many. */
class Curve {
  #points = new Map<number, Stretch>();
  /** Steps of a point; 0: each step has its own. */
  #width = 0;
  #start = 0;

  add(stretch: Stretch): void {
    this.#join(stretch);
    if (this.#points.size > MAX_READ_POINTS) this.#widen(MAX_READ_POINTS);
  }

  /** What began there or later was done again. */
  forgetFrom(step: number): void {
    for (const [key, { first }] of this.#points) if (first >= step) this.#points.delete(key);
  }

  /** In the order of steps. */
  points(maxPoints: number): MetricPoint[] {
    if (this.#points.size > maxPoints) this.#widen(maxPoints);
    return [...this.#points.values()]
      .sort((a, b) => a.last - b.last)
      .map(({ last, unixMs, count, min, max, mean }) => {
        return { step: last, time: new Date(unixMs).toISOString(), count, min, max, mean };
      });
  }

  #join(stretch: Stretch): void {
    const { last } = stretch;
    const key = this.#width === 0 ? last : Math.floor((last - this.#start) / this.#width);
    const known = this.#points.get(key);
    this.#points.set(key, known ? joined(known, stretch) : stretch);
  }

  #widen(maxPoints: number): void {
    const before = [...this.#points.values()];
    this.#start = Math.min(...before.map(({ last }) => last));
    const span = Math.max(...before.map(({ last }) => last)) - this.#start;
    while (this.#points.size > maxPoints) {
      this.#width = this.#width === 0 ? span / (maxPoints - 1) : this.#width * 2;
      this.#points = new Map();
      for (const stretch of before) this.#join(stretch);
    }
  }
}

function joined(a: Stretch, b: Stretch): Stretch {
  return {
    ...joinSummaries(a, b),
    first: Math.min(a.first, b.first),
    last: Math.max(a.last, b.last),
    unixMs: Math.max(a.unixMs, b.unixMs),
  };
}

/** The curves of a job's records. A later run takes the place of earlier ones from its first step on. */
export class MetricCurves {
  readonly #query: CurveQuery;
  readonly #names = new Set<string>();
  readonly #curves = new Map<string, Curve>();
  /** The first step of each run, the latest run first. */
  readonly #starts: { readonly run: MetricRun; readonly step: number }[] = [];

  constructor(query: CurveQuery) {
    this.#query = query;
  }

  add(run: MetricRun, record: MetricRecord, unixMs: number): void {
    if (!this.#starts.some((known) => compare(known.run, run) === 0))
      this.#begin(run, record.first);
    const later = this.#starts.filter((known) => compare(known.run, run) > 0);
    if (later.some(({ step }) => record.first >= step)) return;
    const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = this.#query;
    const { first, last, values } = record;
    for (const [name, summary] of Object.entries(values)) {
      if (this.#names.size < MAX_NAMES) this.#names.add(name);
      if (last < from || first > to) continue;
      this.#curve(name)?.add({ ...summary, first, last, unixMs });
    }
  }

  get answer(): Pick<JobMetrics, "names" | "series"> {
    const each = Math.floor(MAX_POINTS / Math.max(1, this.#curves.size));
    const points = Math.min(this.#query.points, each);
    const series = [...this.#curves].map(([name, curve]) => ({
      name,
      points: curve.points(points),
    }));
    return { names: [...this.#names], series };
  }

  #begin(run: MetricRun, step: number): void {
    const isLatest = this.#starts.every((known) => compare(known.run, run) < 0);
    this.#starts.push({ run, step });
    if (isLatest) for (const curve of this.#curves.values()) curve.forgetFrom(step);
  }

  #curve(name: string): Curve | undefined {
    const { names } = this.#query;
    if (names && !names.includes(name)) return undefined;
    const known = this.#curves.get(name);
    if (known || this.#curves.size >= MAX_CURVES) return known;
    const curve = new Curve();
    this.#curves.set(name, curve);
    return curve;
  }
}

function compare(a: MetricRun, b: MetricRun): number {
  return a.attempt - b.attempt || a.incarnation - b.incarnation;
}
