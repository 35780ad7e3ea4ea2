import type { JobFilters } from "@heddle/client/resources/jobs/jobs";
import type { JobSummary } from "@heddle/contracts/api/job-replies";
import type { JobState } from "@heddle/contracts/api/job-spec";
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useCallback, useEffect, useMemo, useRef } from "react";
import { useLiveEvents } from "../data/live-events.ts";
import { isEndedState, jobPagesQuery, newestJobsQuery } from "../data/queries.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCompact, formatCount, formatSpan, formatTime } from "../ui/format.ts";
import { PageHead, Waiting } from "../ui/parts.tsx";
import { RowLink } from "../ui/row-link.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { useNow } from "../ui/use-now.ts";
import { type TableColumn, VirtualTable } from "../ui/virtual-table.tsx";
import { hasGap, mergeJobs } from "./merge-jobs.ts";
import { ReportedProgress } from "./reported-progress.tsx";

const text = STRINGS.jobs;
const LIVE = ["accepted", "pending", "scheduled", "starting", "running", "checkpointing"] as const;
const STOPPED = ["preempted", "suspended", "recovering", "retrying", "cancelling"] as const;
const ENDED = ["succeeded", "failed", "cancelled"] as const;
const STATES: readonly JobState[] = [...LIVE, ...STOPPED, ...ENDED];

/** The jobs, newest first, each in its place while its state changes. */
export function JobsPage() {
  const { state, ...named } = useSearch({ from: "/jobs" });
  const filters: JobFilters = { ...named, state: STATES.find((each) => each === state) };
  const { rows, error, more } = useJobRows(filters);
  const mayCreate = useMay("jobs:create");
  return (
    <div className="page page-fill">
      <PageHead title={STRINGS.pages.jobs}>
        {mayCreate && (
          <Link className="button primary" to="/submit" search={{ from: undefined }}>
            {text.submit}
          </Link>
        )}
      </PageHead>
      <Filters />
      {rows ? (
        <VirtualTable
          label={text.table}
          columns={COLUMNS}
          rows={rows}
          keyOf={({ id }) => id}
          empty={text.empty}
          onEnd={more}
        />
      ) : (
        <Waiting error={error} />
      )}
    </div>
  );
}

function useJobRows(filters: JobFilters) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const newest = useQuery(newestJobsQuery(heddle, filters));
  const pages = useInfiniteQuery(jobPagesQuery(heddle, filters));
  const events = useLiveEvents();
  const read = useMemo(() => pages.data?.pages.flatMap(({ data }) => data), [pages.data]);
  const isGap = hasGap(newest.data?.data ?? [], read ?? []);
  useEffect(() => {
    if (isGap) void queries.resetQueries({ queryKey: ["job-pages"] });
  }, [isGap, queries]);
  const rows = useMemo(
    () => read && mergeJobs(newest.data?.data ?? [], read, events),
    [read, newest.data, events],
  );
  const { fetchNextPage, hasNextPage, isFetching } = pages;
  const more = useCallback(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [fetchNextPage, hasNextPage, isFetching]);
  return { rows, error: pages.error ?? newest.error, more };
}

function Filters() {
  const search = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const filters = useRef<HTMLFormElement>(null);
  const { state, name, project, label } = search;
  // The address may change by the browser's buttons.
  useEffect(() => {
    for (const [field, value = ""] of Object.entries({ state, name, project, label })) {
      const input = filters.current?.elements.namedItem(field);
      if (input) (input as HTMLInputElement | HTMLSelectElement).value = value;
    }
  }, [state, name, project, label]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const given = (name: string) => String(form.get(name) ?? "").trim() || undefined;
    void navigate({
      search: {
        state: given("state"),
        name: given("name"),
        project: given("project"),
        label: given("label"),
      },
    });
  };
  return (
    <form className="filters" aria-label={text.filters} ref={filters} onSubmit={submit}>
      <label>
        {STRINGS.common.state}
        <select
          name="state"
          defaultValue={state}
          onChange={({ target }) => target.form?.requestSubmit()}
        >
          <option value="">{STRINGS.common.all}</option>
          {STATES.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      <label>
        {text.filterName}
        <input name="name" defaultValue={name} />
      </label>
      <label>
        {text.filterProject}
        <input name="project" defaultValue={project} />
      </label>
      <label>
        {text.filterLabel}
        <input name="label" defaultValue={label} />
      </label>
      <button type="submit">{text.apply}</button>
    </form>
  );
}

const COLUMNS: readonly TableColumn<JobSummary>[] = [
  {
    title: STRINGS.common.name,
    width: "minmax(10rem, 2.5fr)",
    cell: ({ id, name }) => (
      <RowLink className="row-link" to="/jobs/$id" id={id}>
        {name}
      </RowLink>
    ),
  },
  {
    title: STRINGS.common.state,
    width: "minmax(9rem, 1fr)",
    cell: ({ state }) => <StatusBadge state={state} />,
  },
  { title: text.project, width: "minmax(6rem, 1fr)", cell: ({ project }) => project },
  {
    title: text.gpus,
    width: "5rem",
    isNumber: true,
    cell: ({ gpu_count }) => formatCount(gpu_count),
  },
  {
    title: text.progress,
    width: "minmax(8rem, 1fr)",
    cell: (job) => <ReportedProgress job={job} isShort />,
  },
  {
    title: text.loss,
    width: "5rem",
    isNumber: true,
    cell: ({ progress }) => (progress?.loss == null ? "" : formatCompact(progress.loss)),
  },
  {
    title: text.attempt,
    width: "6.5rem",
    isNumber: true,
    cell: ({ attempt }) => formatCount(attempt),
  },
  {
    title: text.submitted,
    width: "minmax(13rem, 1fr)",
    cell: ({ submitted_at }) => <time dateTime={submitted_at}>{formatTime(submitted_at)}</time>,
  },
  {
    title: text.duration,
    width: "minmax(6.5rem, 0.7fr)",
    isNumber: true,
    cell: (job) => <RunTime job={job} />,
  },
];

/** From its start to its end, or to now. */
function RunTime({ job: { started_at, ended_at, state } }: { readonly job: JobSummary }) {
  if (started_at === null) return null;
  const startMs = Date.parse(started_at);
  if (ended_at !== null) return formatSpan(Date.parse(ended_at) - startMs);
  return isEndedState(state) ? null : <TimeSince startMs={startMs} />;
}

function TimeSince({ startMs }: { readonly startMs: number }) {
  return formatSpan(useNow() - startMs);
}
