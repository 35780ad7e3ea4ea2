import type { ClusterMetricsReply, ClusterStatusReply } from "@heddle/contracts/api/cluster";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useLiveEvents } from "../data/live-events.ts";
import { isEndedState, metricsQuery, modelsQuery, statusQuery } from "../data/queries.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { EXAMPLE_SPEC } from "../submit/spec-fields.ts";
import { useSubmit } from "../submit/use-submit.ts";
import { ErrorNote } from "../ui/error-note.tsx";
import { EventLine } from "../ui/event-line.tsx";
import { formatCompact, formatCount, formatPercent } from "../ui/format.ts";
import { Card, PageHead, Waiting } from "../ui/parts.tsx";
import { Series, type SeriesPoint } from "../ui/series.ts";
import { SeriesChart } from "../ui/series-chart.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";

const RECENT_EVENTS = 12;
/** Points of a series that grows while the page is open: an hour of them. */
const MAX_POINTS = 1_800;

/** The cluster at a glance. */
export function OverviewPage() {
  const { heddle } = useSession();
  const mayRead = useMay("cluster:read");
  const mayReadJobs = useMay("jobs:read");
  const status = useQuery({ ...statusQuery(heddle), enabled: mayRead });
  const metrics = useQuery({ ...metricsQuery(heddle), enabled: mayRead });
  const error = status.error ?? metrics.error;
  return (
    <div className="page">
      <PageHead title={STRINGS.pages.overview}>
        <FirstSteps />
      </PageHead>
      {status.data && metrics.data ? (
        <Figures status={status.data} metrics={metrics.data} />
      ) : (
        mayRead && <Waiting error={error} />
      )}
      <div className="columns">
        <ModelsCard />
        {mayReadJobs && <RecentCard />}
      </div>
    </div>
  );
}

/** What a new cluster is tried with. */
function FirstSteps() {
  const mayChat = useMay("inference:create");
  const mayCreate = useMay("jobs:create");
  const { submit, isBusy, error } = useSubmit();
  return (
    <>
      {error !== undefined && <ErrorNote error={error} />}
      {mayChat && (
        <Link className="button" to="/playground">
          {STRINGS.overview.chat}
        </Link>
      )}
      {mayCreate && (
        <button type="button" disabled={isBusy} onClick={() => submit(EXAMPLE_SPEC)}>
          {STRINGS.overview.runExample}
        </button>
      )}
    </>
  );
}

interface FiguresOptions {
  readonly status: ClusterStatusReply;
  readonly metrics: ClusterMetricsReply;
}

function Figures({ status, metrics }: FiguresOptions) {
  const text = STRINGS.overview;
  const { quorum } = status;
  const { gpus, tokens, jobs } = metrics;
  const waiting = metrics.requests.waiting + metrics.queues.dispatch;
  const live = Object.entries(jobs.by_state).filter(([state]) => !isEndedState(state));
  const liveJobs = live.reduce((sum, [, count]) => sum + count, 0);
  const simulated = gpus.simulated > 0 ? ` (${STRINGS.common.simulated})` : "";
  return (
    <>
      <div className="figures">
        <Figure
          title={text.health}
          value={text.healthy[status.health]}
          note={text.masters(quorum.reachable, quorum.voters)}
        />
        <Figure
          title={text.nodes}
          value={formatCount(metrics.workers.total + metrics.parameter_servers.total)}
          note={`${text.workers(metrics.workers.total)}, ${text.parameterServers(metrics.parameter_servers.total)}`}
        />
        <Figure
          title={text.gpus}
          value={STRINGS.common.of(formatCount(gpus.used), formatCount(gpus.total)) + simulated}
          note={text.utilization(formatPercent(gpus.utilization_percent))}
        />
        <Figure
          title={text.calls}
          value={formatCount(metrics.requests.running)}
          note={text.waiting(waiting)}
        />
        <Figure
          title={text.tokens}
          value={formatCompact(tokens.generated_per_second)}
          note={text.tokensTotal(formatCompact(tokens.generated_total))}
        />
        <Figure title={text.jobs} value={formatCount(liveJobs)} note="" />
      </div>
      <div className="columns">
        <TokensCard metrics={metrics} />
        <JobsCard byState={jobs.by_state} />
      </div>
    </>
  );
}

interface FigureOptions {
  readonly title: string;
  readonly value: string;
  readonly note: string;
}

function Figure({ title, value, note }: FigureOptions) {
  return (
    <section className="card figure">
      <h2>{title}</h2>
      <p className="figure-value">{value}</p>
      <p className="muted">{note}</p>
    </section>
  );
}

function TokensCard({ metrics }: { readonly metrics: ClusterMetricsReply }) {
  const [points, setPoints] = useState<readonly SeriesPoint[]>([]);
  const { timestamp, tokens } = metrics;
  const rate = tokens.generated_per_second;
  useEffect(() => {
    const point = { x: Date.parse(timestamp), y: rate };
    setPoints((old) => [...old.slice(1 - MAX_POINTS), point]);
  }, [timestamp, rate]);
  return (
    <Card title={STRINGS.overview.tokens}>
      <SeriesChart
        label={STRINGS.overview.tokenSeries}
        series={Series.of(points)}
        format={formatCompact}
      />
    </Card>
  );
}

function JobsCard({ byState }: { readonly byState: Readonly<Record<string, number>> }) {
  const states = Object.entries(byState).filter(([, count]) => count > 0);
  return (
    <Card title={STRINGS.overview.jobsByState}>
      {states.length === 0 && <p className="muted">{STRINGS.overview.noJobs}</p>}
      <ul className="plain-list">
        {states.map(([state, count]) => (
          <li key={state}>
            <Link to="/jobs" search={{ state }}>
              <StatusBadge state={state} />
            </Link>
            <span>{formatCount(count)}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function ModelsCard() {
  const { heddle } = useSession();
  const mayRead = useMay("models:read");
  const { data, error } = useQuery({ ...modelsQuery(heddle), enabled: mayRead });
  if (!mayRead) return null;
  return (
    <Card title={STRINGS.overview.models}>
      {!data && <Waiting error={error} />}
      {data?.length === 0 && <p className="muted">{STRINGS.overview.noModels}</p>}
      <ul className="plain-list">
        {data?.map(({ id, status, replicas }) => (
          <li key={id}>
            <span className="name">{id}</span>
            <span className="muted">
              {STRINGS.overview.replicas(
                replicas.filter(({ phase }) => phase === "ready").length,
                replicas.length,
              )}
            </span>
            <StatusBadge state={status} />
          </li>
        ))}
      </ul>
    </Card>
  );
}

function RecentCard() {
  const events = useLiveEvents().slice(0, RECENT_EVENTS);
  return (
    <Card title={STRINGS.overview.recent}>
      {events.length === 0 && <p className="muted">{STRINGS.overview.noEvents}</p>}
      <ul className="plain-list">
        {events.map((event) => (
          <li key={event.id}>
            <EventLine event={event} />
          </li>
        ))}
      </ul>
    </Card>
  );
}
