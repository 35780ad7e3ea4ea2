import { type ProcessSeries } from "../support/process-sampler.ts";
import { summarizeSamples } from "../support/statistics.ts";
import { printTable } from "../support/table.ts";
import type { JobAudit } from "./audit.ts";
import { chartPage } from "./chart.ts";
import type { ChatOutcome } from "./chat-load.ts";
import type { Fault } from "./faults.ts";
import type { RoleTrend } from "./trends.ts";

interface Lived {
  readonly chats: readonly ChatOutcome[];
  readonly drains: number;
  readonly audit: JobAudit;
  readonly faults: readonly Fault[];
  readonly trends: readonly RoleTrend[];
}

export function printFigures({ chats, drains, audit, faults, trends }: Lived): void {
  const kinds = [...Map.groupBy(faults, ({ what, target }) => `${what} of ${kindOf(target)}`)];
  printTable(
    "Faults",
    ["fault", "times"],
    [...kinds.map(([kind, list]) => [kind, list.length] as const), ["drain of a worker", drains]],
  );
  const failures = chats.flatMap((chat) => chat.failures);
  const answers = summarizeSamples(chats.map(({ ms }) => ms));
  const jobs = summarizeSamples(audit.afterMs);
  printTable(
    "What clients saw; an answer's time contains its repetitions",
    ["what", "count", "p50 ms", "p99 ms", "max ms"],
    [
      ["answers", answers.count, answers.p50, answers.p99, answers.max],
      ["jobs that succeeded", jobs.count, jobs.p50, jobs.p99, jobs.max],
    ],
  );
  printTable(
    "Answers that were asked for again, by why the stream failed",
    ["code", "times"],
    [...Map.groupBy(failures, (code) => code.slice(0, 60))].map(([code, list]) => [
      code,
      list.length,
    ]),
  );
  printTable(
    "Processes after their first 45 s, medians of the second and the last quarter",
    ["role", "processes", "MiB second", "last", "max", "descriptors second", "last", "max"],
    trends.map(({ role, processes, residentMiB, descriptors }) => [
      role,
      processes,
      ...[residentMiB, descriptors].flatMap(({ second, last, max }) => [second, last, max]),
    ]),
  );
}

function kindOf(target: string): string {
  return target.replace(/-\d+$/, "");
}

interface Plotted {
  readonly series: readonly ProcessSeries[];
  readonly chats: readonly ChatOutcome[];
  readonly faults: readonly Fault[];
  readonly startedAt: number;
}

/** The curves of a run as one SVG; red marks are faults. */
export function plot({ series, chats, faults, startedAt }: Plotted): string {
  const minuteOf = (atMs: number) => (atMs - startedAt) / 60_000;
  const marks = faults.map(({ atMs }) => minuteOf(atMs));
  const perRole = (pick: (sample: ProcessSeries["samples"][number]) => number) =>
    [...Map.groupBy(series, ({ role }) => role)].map(([name, list]) => ({
      name,
      points: largestPerTime(
        list.flatMap(({ samples }) =>
          samples.map((sample) => ({ x: minuteOf(sample.atMs), y: pick(sample) })),
        ),
      ),
    }));
  const answers = chats.map(({ atMs, ms }) => ({ x: minuteOf(atMs), y: ms / 1_000 }));
  return chartPage([
    {
      title: "Largest resident memory by role",
      unit: "MiB",
      marks,
      lines: perRole(({ residentBytes }) => residentBytes / 2 ** 20),
    },
    {
      title: "Most descriptors by role",
      unit: "open",
      marks,
      lines: perRole(({ descriptors }) => descriptors),
    },
    {
      title: "Answers",
      unit: "s until complete",
      marks,
      lines: [{ name: "chat", points: answers.sort((a, b) => a.x - b.x) }],
    },
  ]);
}

/** The largest point of each twelfth of a minute. */
function largestPerTime(points: readonly { readonly x: number; readonly y: number }[]) {
  const largest = new Map<number, number>();
  for (const { x, y } of points) {
    const at = Math.round(x * 12) / 12;
    largest.set(at, Math.max(largest.get(at) ?? 0, y));
  }
  return [...largest].sort(([a], [b]) => a - b).map(([x, y]) => ({ x, y }));
}
