import type { Heddle } from "@heddle/client/heddle";
import type { JobFilters } from "@heddle/client/resources/jobs/jobs";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
import type { Job } from "@heddle/contracts/api/job-replies";
import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";

const FAST_MS = 2_000;
export const CALM_MS = 5_000;
/** Jobs of one page of the list. */
const PAGE_JOBS = 200;
/** Nodes of one reply: to parse the whole list at once would take longer than a frame. */
const PAGE_NODES = 100;
/** Points of a curve, of which each may be two of its drawing. */
const CURVE_POINTS = 400;
const TERMINAL = new Set(["succeeded", "failed", "cancelled"]);

export function isEndedState(state: string): boolean {
  return TERMINAL.has(state);
}

/** The caller. It is read again only where its age matters: all pages ask what it may do. */
export function selfQuery(heddle: Heddle, self: CallerView) {
  return queryOptions({
    queryKey: ["self"],
    queryFn: ({ signal }) => heddle.access.whoami({ signal }),
    initialData: self,
    staleTime: Infinity,
  });
}

export function statusQuery(heddle: Heddle) {
  return queryOptions({
    queryKey: ["status"],
    queryFn: ({ signal }) => heddle.cluster.status({ signal }),
    refetchInterval: FAST_MS,
  });
}

export function metricsQuery(heddle: Heddle) {
  return queryOptions({
    queryKey: ["metrics"],
    queryFn: ({ signal }) => heddle.cluster.metrics({ signal }),
    refetchInterval: FAST_MS,
  });
}

export function modelsQuery(heddle: Heddle) {
  return queryOptions({
    queryKey: ["models"],
    queryFn: ({ signal }) => heddle.models.list({ signal }),
    refetchInterval: CALM_MS,
  });
}

/** What plugins a master has changes with its start alone. */
export function pluginsQuery(heddle: Heddle) {
  return queryOptions({
    queryKey: ["plugins"],
    queryFn: ({ signal }) => heddle.plugins.list({ signal }),
  });
}

const NAMES = new Intl.Collator("en", { numeric: true });

/** In the order of their names. */
export function nodesQuery(heddle: Heddle) {
  return queryOptions({
    queryKey: ["nodes"],
    queryFn: async ({ signal }) => {
      const nodes = await heddle.workers.list({ pageSize: PAGE_NODES, signal });
      return nodes.toSorted((a, b) => NAMES.compare(a.name, b.name));
    },
    refetchInterval: CALM_MS,
    // To compare a thousand nodes with those before takes longer than to draw the rows in view.
    structuralSharing: false,
  });
}

export function nodeQuery(heddle: Heddle, id: string) {
  return queryOptions({
    queryKey: ["nodes", id],
    queryFn: ({ signal }) => heddle.workers.get(id, { signal }),
    refetchInterval: FAST_MS,
  });
}

export function rolesQuery(heddle: Heddle) {
  return queryOptions({
    queryKey: ["roles"],
    queryFn: ({ signal }) => heddle.roles.list({ signal }).page(),
  });
}

/** The first page of a list, read again and again: it has every job that is new. */
export function newestJobsQuery(heddle: Heddle, filters: JobFilters) {
  return queryOptions({
    queryKey: ["jobs", "newest", filters],
    queryFn: ({ signal }) => heddle.jobs.list({ ...filters, limit: PAGE_JOBS }, { signal }).page(),
    refetchInterval: CALM_MS,
  });
}

/** The pages of a list as they were read. */
export function jobPagesQuery(heddle: Heddle, filters: JobFilters) {
  return infiniteQueryOptions({
    queryKey: ["job-pages", filters],
    queryFn: ({ signal, pageParam }) =>
      heddle.jobs.list({ ...filters, limit: PAGE_JOBS }, { signal }).page(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next_cursor }) => next_cursor ?? undefined,
  });
}

export function jobQuery(heddle: Heddle, id: string) {
  return queryOptions({
    queryKey: ["jobs", "one", id],
    queryFn: ({ signal }) => heddle.jobs.get(id, { signal }),
    refetchInterval: ({ state }) => (isEnded(state.data) ? false : FAST_MS),
  });
}

/** The numbers that the job has reported, from its beginning. */
export function jobMetricsQuery(heddle: Heddle, job: Pick<Job, "id" | "state">) {
  const isJobEnded = isEndedState(job.state);
  return queryOptions({
    // Read once more at its end.
    queryKey: ["jobs", "metrics", job.id, isJobEnded],
    queryFn: ({ signal }) => heddle.jobs.metrics(job.id, { points: CURVE_POINTS, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: isJobEnded ? false : CALM_MS,
  });
}

export function jobEventsQuery(heddle: Heddle, id: string) {
  return queryOptions({
    queryKey: ["jobs", "events", id],
    queryFn: ({ signal }) => heddle.jobs.events(id, { limit: 1_000, signal }),
  });
}

export function artifactsQuery(heddle: Heddle, id: string) {
  return queryOptions({
    queryKey: ["jobs", "artifacts", id],
    queryFn: ({ signal }) => heddle.jobs.artifacts(id, { signal }),
  });
}

function isEnded(job: Job | undefined): boolean {
  return job !== undefined && isEndedState(job.state);
}
