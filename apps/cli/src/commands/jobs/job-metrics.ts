import { AppError } from "@heddle/base/errors";
import type { JobMetrics, MetricPoint } from "@heddle/contracts/api/job-replies";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../../command-context.ts";
import { amountOf, wholeNumberOf } from "../../number-flags.ts";
import { shortNumber } from "../../output/job-progress.ts";
import { isRecordFormat, printRecord, printRows } from "../../output/rows.ts";
import { resolveJobId } from "./job-id.ts";

interface MetricFlags {
  readonly points: string;
  readonly attempt?: string;
  readonly rank?: string;
}

type Series = JobMetrics["series"][number];

/** Eighths of a line's height. */
const BARS = [..."▁▂▃▄▅▆▇█"];
/** Characters of a curve beside its name. */
const CURVE_POINTS = 24;

/** `heddle jobs metrics <job> [name...]`: every number with its curve, or some by step. */
export async function jobMetrics(command: Command): Promise<number> {
  const context = commandContext(command);
  const [given, ...names] = command.args;
  const id = await resolveJobId(context.heddle, given);
  const { points, attempt, rank } = command.opts() as MetricFlags;
  const range = command.opts() as Record<string, string | undefined>;
  const number = (flag: string, text?: string) =>
    text === undefined ? undefined : wholeNumberOf(flag, text);
  const metrics = await context.heddle.jobs.metrics(id, {
    name: names.length > 0 ? names : undefined,
    from: amountOf(range, "from"),
    to: amountOf(range, "to"),
    points: names.length > 0 ? wholeNumberOf("--points", points) : CURVE_POINTS,
    attempt: number("--attempt", attempt),
    rank: number("--rank", rank),
  });
  const unknown = names.find((name) => !metrics.names.includes(name));
  if (unknown !== undefined) throw noMetric(id, unknown, metrics);
  if (isRecordFormat(context.format)) printRecord(metrics, id, context.format, context.data);
  else if (names.length > 0) printPoints(metrics, context);
  else printCurves(metrics, context);
  return 0;
}

function noMetric(id: string, name: string, { names }: JobMetrics): AppError {
  const message = `The job ${id} has reported no number ${name}; it has: ${names.join(", ") || "none"}.`;
  return new AppError("not_found", message);
}

function printCurves({ series }: JobMetrics, { format, data, messages }: CommandContext): void {
  if (series.length === 0) messages.write("the job has reported no numbers\n");
  const latest = ({ points }: Series) => points.at(-1);
  const extreme = (of: (...values: number[]) => number, pick: (point: MetricPoint) => number) => {
    return ({ points }: Series) => shortNumber(of(...points.map(pick)));
  };
  printRows(
    series,
    [
      { header: "NAME", value: ({ name }) => name },
      { header: "STEP", value: (each) => String(latest(each)?.step ?? "") },
      { header: "LATEST", value: (each) => shortNumber(latest(each)?.mean ?? 0) },
      { header: "LEAST", value: extreme(Math.min, ({ min }) => min) },
      { header: "GREATEST", value: extreme(Math.max, ({ max }) => max) },
      { header: "CURVE", value: ({ points }) => curveOf(points.map(({ mean }) => mean)) },
    ],
    format,
    data,
  );
}

function printPoints({ series }: JobMetrics, { format, data }: CommandContext): void {
  const rows = series.flatMap(({ name, points }) => points.map((point) => ({ name, ...point })));
  printRows(
    rows,
    [
      { header: "NAME", value: ({ name }) => name },
      { header: "STEP", value: ({ step }) => String(step) },
      { header: "MEAN", value: ({ mean }) => shortNumber(mean) },
      { header: "LEAST", value: ({ min }) => shortNumber(min) },
      { header: "GREATEST", value: ({ max }) => shortNumber(max) },
      { header: "VALUES", value: ({ count }) => String(count) },
      { header: "TIME", value: ({ time }) => time, wide: true },
    ],
    format,
    data,
  );
}

/** A line of bars; a flat curve is in the middle. */
function curveOf(values: readonly number[]): string {
  const least = Math.min(...values);
  const span = Math.max(...values) - least;
  return values
    .map((value) => {
      const share = span > 0 ? (value - least) / span : 0.5;
      return BARS[Math.min(BARS.length - 1, Math.floor(share * BARS.length))];
    })
    .join("");
}
