import { progressLine } from "../api/job-spec.ts";

/** What is known of the values of one metric within a span of steps. */
export interface MetricSummary {
  readonly count: number;
  readonly min: number;
  readonly max: number;
  readonly mean: number;
}

/** A line of a task's stream `metrics`: neighbouring lines of progress as one. */
export interface MetricRecord {
  readonly first: number;
  readonly last: number;
  readonly values: Readonly<Record<string, MetricSummary>>;
  /** All values of the task up to here. */
  readonly total: number;
  /** The byte of the progress file up to which it is recorded. */
  readonly offset: number;
}

/** The documented numbers of a line that have a curve. */
const CURVES: ReadonlySet<string> = new Set([
  "loss",
  "reward",
  "tokens_per_second",
  "steps_per_second",
]);
/** Further numbers of a line, and the characters of their names. */
const MAX_FURTHER = 32;
const MAX_METRIC_NAME = 64;

/** The numbers of a line that are not documented, in its order. */
export function furtherNumbers(line: object): Readonly<Record<string, number>> {
  const numbers = Object.entries(line).filter(
    ([name, value]) =>
      Number.isFinite(value) &&
      !Object.hasOwn(progressLine.shape, name) &&
      name.length <= MAX_METRIC_NAME,
  );
  return Object.fromEntries(numbers.slice(0, MAX_FURTHER)) as Record<string, number>;
}

/** The numbers of a line that are plotted as curves. */
export function curveNumbers(line: object): Readonly<Record<string, number>> {
  const known = Object.entries(line).filter(
    ([name, value]) => CURVES.has(name) && Number.isFinite(value),
  ) as [string, number][];
  return { ...Object.fromEntries(known), ...furtherNumbers(line) };
}

export function joinSummaries(a: MetricSummary, b: MetricSummary): MetricSummary {
  const count = a.count + b.count;
  return {
    count,
    min: Math.min(a.min, b.min),
    max: Math.max(a.max, b.max),
    // No sum, which could exceed the largest number.
    mean: a.mean * (a.count / count) + b.mean * (b.count / count),
  };
}

/** One line of JSON: a single value as a number, a summary as [count, min, max, mean]. */
export function writeMetricRecord({ first, last, values, total, offset }: MetricRecord): string {
  const written = Object.entries(values).map(([name, { count, min, max, mean }]) => [
    name,
    count === 1 ? [mean] : [count, min, max, mean],
  ]);
  return `${JSON.stringify([first, last, total, offset, Object.fromEntries(written)])}\n`;
}

/** Undefined for an invalid line: programs of the worker's user can write the file too. */
export function readMetricRecord(line: string): MetricRecord | undefined {
  const [first, last, total, offset, written] = parsedList(line);
  const numbers = [first, last, total, offset];
  if (!numbers.every(Number.isFinite) || typeof written !== "object" || !written) return undefined;
  const summaries = Object.entries(written).map(
    ([name, value]) => [name, readSummary(value)] as const,
  );
  const isWhole = ([name, summary]: (typeof summaries)[number]) =>
    summary !== undefined && name.length <= MAX_METRIC_NAME;
  if (!summaries.every(isWhole)) return undefined;
  return {
    first: Number(first),
    last: Number(last),
    total: Number(total),
    offset: Number(offset),
    // Own properties, whatever their names.
    values: Object.fromEntries(summaries) as Record<string, MetricSummary>,
  };
}

function parsedList(line: string): readonly unknown[] {
  try {
    const parsed: unknown = JSON.parse(line);
    return Array.isArray(parsed) ? parsed : [];
  } catch {
    return [];
  }
}

function readSummary(written: unknown): MetricSummary | undefined {
  if (!Array.isArray(written) || !written.every(Number.isFinite)) return undefined;
  const [count, min, max, mean] = (
    written.length === 1 ? [1, written[0], written[0], written[0]] : written
  ) as [number, number, number, number];
  if (mean === undefined || !Number.isSafeInteger(count) || count < 1) return undefined;
  return { count, min, max, mean };
}
