import type { Job, JobFailure, JobTask } from "@heddle/contracts/api/job-replies";
import { Link } from "@tanstack/react-router";
import { isEndedState } from "../data/queries.ts";
import { STRINGS } from "../strings.ts";
import { CodeBlock } from "../ui/code-block.tsx";
import { formatAgo, formatCompact, formatCount, formatTime } from "../ui/format.ts";
import { Card, Facts, PlainTable } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { useNow } from "../ui/use-now.ts";
import { JobCurves } from "./job-curves.tsx";
import { JobExplanationCard } from "./job-explanation.tsx";
import { JobTimeline } from "./job-timeline.tsx";
import { hasProgress, ReportedProgress } from "./reported-progress.tsx";

const text = STRINGS.jobs;

/** What a job is doing, why it waits or has failed, and its tasks. */
export function JobOverview({ job }: { readonly job: Job }) {
  return (
    <div className="scroll">
      {job.explanation && <JobExplanationCard job={job} />}
      {job.failure && <Failure failure={job.failure} />}
      <JobCurves job={job} />
      <JobTimeline id={job.id} />
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

function JobFacts({ job }: { readonly job: Job }) {
  const now = useNow();
  const { progress, checkpoint, model } = job;
  const never = isEndedState(job.state) ? STRINGS.common.none : STRINGS.common.notYet;
  const at = (time: string | null) =>
    time === null ? never : `${formatTime(time)} (${formatAgo(time, now)})`;
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
