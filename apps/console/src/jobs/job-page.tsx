import type { Job } from "@heddle/contracts/api/job-replies";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { jobQuery } from "../data/queries.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { CodeBlock } from "../ui/code-block.tsx";
import { PageHead, Waiting } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { JobActions } from "./job-actions.tsx";
import { JobArtifacts } from "./job-artifacts.tsx";
import { JobEvents } from "./job-events.tsx";
import { JobLogs } from "./job-logs.tsx";
import { JobOverview } from "./job-overview.tsx";

const PARTS = ["summary", "logs", "events", "spec", "artifacts"] as const;
type Part = (typeof PARTS)[number];

/** One job, with its output, events, spec and artifacts. */
export function JobPage() {
  const { id } = useParams({ from: "/jobs/$id" });
  const { part: asked } = useSearch({ from: "/jobs/$id" });
  const { heddle } = useSession();
  const { data: job, error } = useQuery(jobQuery(heddle, id));
  const mayCreate = useMay("jobs:create");
  const part = PARTS.find((each) => each === asked) ?? "summary";
  if (!job) {
    return (
      <div className="page">
        <PageHead title={id} />
        <Waiting error={error} />
      </div>
    );
  }
  return (
    <div className="page page-fill">
      <PageHead
        title={
          <>
            {job.name} <StatusBadge state={job.state} />
          </>
        }
      >
        {mayCreate && (
          <Link className="button" to="/submit" search={{ from: id }}>
            {STRINGS.jobs.again}
          </Link>
        )}
        <JobActions job={job} />
      </PageHead>
      <nav className="parts" aria-label={STRINGS.jobs.sections}>
        {PARTS.map((each) => (
          <Link
            key={each}
            to="/jobs/$id"
            params={{ id }}
            search={{ part: each === "summary" ? undefined : each }}
            activeOptions={{ exact: true, includeSearch: true }}
          >
            {STRINGS.jobs.tabs[each]}
          </Link>
        ))}
      </nav>
      <JobPart job={job} part={part} />
    </div>
  );
}

function JobPart({ job, part }: { readonly job: Job; readonly part: Part }) {
  if (part === "logs") return <JobLogs key={job.id} job={job} />;
  if (part === "events") return <JobEvents id={job.id} />;
  if (part === "artifacts") return <JobArtifacts id={job.id} />;
  if (part === "spec") return <Spec job={job} />;
  return <JobOverview key={job.id} job={job} />;
}

function Spec({ job: { spec } }: { readonly job: Job }) {
  const json = JSON.stringify(spec, null, 2);
  return <CodeBlock label={STRINGS.jobs.tabs.spec} text={json} />;
}
