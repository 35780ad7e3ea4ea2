import type { Job } from "@heddle/contracts/api/job-replies";
import { STRINGS } from "../strings.ts";
import { formatTime } from "../ui/format.ts";
import { Card } from "../ui/parts.tsx";

const text = STRINGS.jobs;

/** Why a job waits, when it may start, and changes that would help. */
export function JobExplanationCard({ job }: { readonly job: Job }) {
  const { explanation } = job;
  if (!explanation) return null;
  const { blockers, tasks_that_fit, start_estimate, changes } = explanation;
  return (
    <Card title={text.why}>
      <ul>
        {blockers.map(({ reason, message }) => (
          <li key={reason + message}>
            <strong>{reason}</strong>: {message}
          </li>
        ))}
      </ul>
      <p className="muted">
        {text.tasksThatFit(tasks_that_fit, job.tasks)}{" "}
        {start_estimate.likely && text.startLikely(formatTime(start_estimate.likely))}
      </p>
      {changes.length > 0 && (
        <ul>
          {changes.map(({ field, from, to, outcome }) => (
            <li key={field}>{text.change(field, String(from), String(to), outcome)}</li>
          ))}
        </ul>
      )}
    </Card>
  );
}
