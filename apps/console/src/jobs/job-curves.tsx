import type { Job, JobMetrics, MetricPoint } from "@heddle/contracts/api/job-replies";
import { useQuery } from "@tanstack/react-query";
import { jobMetricsQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCompact } from "../ui/format.ts";
import { Card } from "../ui/parts.tsx";
import { Series, type SeriesPoint } from "../ui/series.ts";
import { SeriesChart } from "../ui/series-chart.tsx";

const text = STRINGS.jobs;
/** Shown first, under names for people. */
const TITLES: ReadonlyMap<string, string> = new Map([
  ["loss", text.loss],
  ["reward", text.reward],
]);

/** The numbers that the job has reported, by step: of its latest attempt, and what came before. */
export function JobCurves({ job }: { readonly job: Job }) {
  const { heddle } = useSession();
  const { data } = useQuery(jobMetricsQuery(heddle, job));
  const curves = (data?.series ?? []).filter(({ points }) => points.length > 1).toSorted(byTitle);
  if (curves.length === 0) return null;
  return (
    <div className="columns">
      {curves.map(({ name, points }) => (
        <Card key={name} title={TITLES.get(name) ?? name}>
          <SeriesChart
            label={text.curve(name)}
            series={Series.of(points.flatMap(drawn))}
            format={formatCompact}
          />
        </Card>
      ))}
    </div>
  );
}

/** A point of many values shows their extremes. */
function drawn({ step: x, count, min, max, mean }: MetricPoint): readonly SeriesPoint[] {
  if (count === 1) return [{ x, y: mean }];
  return [min, max, mean].map((y) => ({ x, y }));
}

type Curve = JobMetrics["series"][number];

function byTitle(a: Curve, b: Curve): number {
  const names = [...TITLES.keys()];
  const place = ({ name }: Curve) => (TITLES.has(name) ? names.indexOf(name) : names.length);
  return place(a) - place(b);
}
