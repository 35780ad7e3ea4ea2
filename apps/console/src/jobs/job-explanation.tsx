import type { Job } from "@heddle/contracts/api/job-replies";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { withChange } from "../submit/spec-fields.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { formatTime } from "../ui/format.ts";
import { Card } from "../ui/parts.tsx";

const text = STRINGS.jobs;

/** Why a job waits, when it may start, and changes that would help. */
export function JobExplanationCard({ job }: { readonly job: Job }) {
  const mayCreate = useMay("jobs:create");
  const { explanation } = job;
  if (!explanation) return null;
  const { blockers, tasks_that_fit, start_estimate, changes } = explanation;
  return (
    <Card title={text.why}>
      <ul>
        {blockers.map(({ message }) => (
          <li key={message}>{message}</li>
        ))}
      </ul>
      <p className="muted">
        {text.tasksThatFit(tasks_that_fit, job.tasks)}{" "}
        {start_estimate.likely && text.startLikely(formatTime(start_estimate.likely))}
      </p>
      <ul className="plain-list">
        {changes.map((change) => (
          <li key={change.field}>
            <span>{text.change(change.field, change.from, change.to, change.outcome)}</span>
            <ApplyChange job={job} change={change} />
          </li>
        ))}
      </ul>
      {mayCreate && (
        <Link to="/submit" search={{ from: job.id }}>
          {text.edit}
        </Link>
      )}
    </Card>
  );
}

type Change = NonNullable<Job["explanation"]>["changes"][number];

interface ApplyChangeOptions {
  readonly job: Job;
  readonly change: Change;
}

/** Cancels the waiting job and submits it with the change: a submitted spec stays as it is. */
function ApplyChange({ job, change }: ApplyChangeOptions) {
  const { heddle } = useSession();
  const navigate = useNavigate();
  const mayCreate = useMay("jobs:create");
  const mayCancel = useMay("jobs:cancel");
  const changed = withChange(job.spec as Parameters<typeof withChange>[0], change);
  if (!mayCreate || !mayCancel || !changed || job.state !== "pending") return null;
  const apply = async () => {
    // Throws where the changed job would be refused, while this one still waits and has the name.
    await heddle.jobs.explain({ ...changed, name: `changed ${job.id}` });
    await heddle.jobs.cancel(job.id);
    await heddle.jobs.wait(job.id);
    const { job_id: id } = await heddle.jobs.create(changed);
    await navigate({ to: "/jobs/$id", params: { id }, search: { part: undefined } });
  };
  return (
    <ConfirmButton
      label={text.applyChange}
      title={text.applyTitle(job.name)}
      text={text.applyText(change.field, change.to)}
      confirm={text.applyConfirm}
      act={apply}
    />
  );
}
