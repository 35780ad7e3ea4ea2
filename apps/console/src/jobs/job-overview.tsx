import type { Job, JobFailure, JobTask } from "@heddle/contracts/api/job-replies";
import { Link } from "@tanstack/react-router";
import { useEffect, useReducer, useState } from "react";
import { STRINGS } from "../strings.ts";
import { CodeBlock } from "../ui/code-block.tsx";
import { formatAgo, formatCompact, formatCount, formatTime } from "../ui/format.ts";
import { Card, Facts, PlainTable } from "../ui/parts.tsx";
import { Series } from "../ui/series.ts";
import { SeriesChart } from "../ui/series-chart.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { useNow } from "../ui/use-now.ts";
import { JobExplanationCard } from "./job-explanation.tsx";
import { hasProgress, ReportedProgress } from "./reported-progress.tsx";

const text = STRINGS.jobs;

/** What a job is doing, why it waits or has failed, and its tasks. */
export function JobOverview({ job }: { readonly job: Job }) {
  return (
    <div className="scroll">
      {job.explanation && <JobExplanationCard job={job} />}
      {job.failure && <Failure failure={job.failure} />}
      <Curves job={job} />
      <Card title={text.facts}>
        <JobFacts job={job} />
      </Card>
      <Card title={text.tasks}>
        {job.task_list.length === 0 ? (
          <p className="muted">{text.noTasks}</p>
        ) : (
          <Tasks tasks={job.task_list} />
        )}
      </Card>
    </div>
  );
}

function Failure({ failure }: { readonly failure: JobFailure }) {
  return (
    <Card title={text.failure}>
      <p>
        <strong>{failure.reason}</strong>: {failure.message}
      </p>
      {failure.last_lines.length > 0 && (
        <CodeBlock label={text.lastLines} text={failure.last_lines.join("\n")} />
      )}
    </Card>
  );
}

/** The loss and the reward of each step that was reported while the page is open. */
function Curves({ job: { progress } }: { readonly job: Job }) {
  const loss = useSeries(progress?.step ?? null, progress?.loss ?? null);
  const reward = useSeries(progress?.step ?? null, progress?.reward ?? null);
  const charts = [
    { title: text.loss, label: text.curve, series: loss },
    { title: text.reward, label: text.rewardCurve, series: reward },
  ].filter(({ series }) => series.first !== series.last);
  if (charts.length === 0) return null;
  return (
    <div className="columns">
      {charts.map(({ title, label, series }) => (
        <Card key={title} title={title}>
          <SeriesChart label={label} series={series} format={formatCompact} />
        </Card>
      ))}
    </div>
  );
}

/** The points so far; it grows with each new one. */
function useSeries(x: number | null, y: number | null): Series {
  const [series] = useState(() => new Series());
  const [, draw] = useReducer((drawn: number) => drawn + 1, 0);
  useEffect(() => {
    if (x === null || y === null || series.last?.x === x) return;
    series.add({ x, y });
    draw();
  }, [series, x, y]);
  return series;
}

function JobFacts({ job }: { readonly job: Job }) {
  const now = useNow();
  const { progress, checkpoint, model } = job;
  const at = (time: string | null) =>
    time === null ? STRINGS.common.notYet : `${formatTime(time)} (${formatAgo(time, now)})`;
  return (
    <Facts
      rows={[
        [text.id, <code key="id">{job.id}</code>],
        [text.project, job.project],
        [text.queue, job.queue],
        [text.algorithm, job.algorithm ?? ""],
        [text.executor, job.executor],
        [text.gpus, formatCount(job.gpu_count)],
        [text.priority, `${job.qos_level}, ${job.priority}`],
        [text.submitted, at(job.submitted_at)],
        [text.started, at(job.started_at)],
        [text.ended, at(job.ended_at)],
        [text.attempt, formatCount(job.attempt)],
        [text.failures, `${job.failures}, ${job.losses}`],
        [text.progress, hasProgress(job) ? <ReportedProgress key="p" job={job} /> : ""],
        [text.loss, progress?.loss == null ? "" : formatCompact(progress.loss)],
        [text.checkpoint, checkpoint ? `${checkpoint.name} (${checkpoint.step ?? ""})` : ""],
        [text.model, model ? `${model.id}: ${model.state}` : ""],
      ]}
    />
  );
}

function Tasks({ tasks }: { readonly tasks: readonly JobTask[] }) {
  return (
    <PlainTable
      label={text.tasks}
      head={[STRINGS.nodes.rank, text.node, STRINGS.nodes.devices, STRINGS.nodes.phase, text.exit]}
      rows={tasks.map(({ rank, attempt, node, node_name, devices, phase, exit }) => ({
        key: `${attempt} ${rank}`,
        cells: [
          formatCount(rank),
          <Link key="node" to="/nodes/$id" params={{ id: node }}>
            {node_name ?? node}
          </Link>,
          devices.join(", "),
          <StatusBadge key="phase" state={phase} />,
          exit ? `${exit.reason ?? ""} ${exit.message}`.trim() : "",
        ],
      }))}
    />
  );
}
