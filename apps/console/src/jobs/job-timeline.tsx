import type { Job } from "@heddle/contracts/api/job-replies";
import { useQuery } from "@tanstack/react-query";
import { isEndedState, jobEventsQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCount, formatSpan, formatTime } from "../ui/format.ts";
import { Card, PlainTable } from "../ui/parts.tsx";
import { toneOf } from "../ui/status-badge.tsx";
import { useNow } from "../ui/use-now.ts";
import { attemptsOf, type JobAttempt, type StateSpan } from "./attempts.ts";

const text = STRINGS.jobs;
/** The latest of very many attempts are shown. */
const MAX_ATTEMPTS = 20;
const WIDTH = 1_000;
const HEIGHT = 16;
/** A short state is still seen. */
const LEAST_WIDTH = 4;

/** What the job did when, a row for each attempt. */
export function JobTimeline({ id }: Pick<Job, "id">) {
  const { heddle } = useSession();
  const { data } = useQuery(jobEventsQuery(heddle, id));
  const now = useNow();
  const attempts = attemptsOf(data?.data ?? [], now).slice(-MAX_ATTEMPTS);
  const times = attempts.flatMap(({ spans }) =>
    spans.flatMap((span) => [span.fromMs, span.untilMs]),
  );
  if (times.length === 0) return null;
  const [fromMs, untilMs] = [Math.min(...times), Math.max(...times)];
  return (
    <Card title={text.timeline}>
      <PlainTable
        label={text.timeline}
        head={[text.attempt, text.started, text.timelineStates, text.timelineBar]}
        rows={attempts.map((each) => ({
          key: String(each.attempt),
          cells: [
            each.attempt === 0 ? text.beforeFirst : formatCount(each.attempt),
            formatTime(new Date(each.spans[0]!.fromMs).toISOString()),
            each.spans.map(spanText).join(", "),
            <AttemptBar key="bar" attempt={each} fromMs={fromMs} untilMs={untilMs} />,
          ],
        }))}
      />
    </Card>
  );
}

function spanText({ state, fromMs, untilMs }: StateSpan): string {
  return isEndedState(state) ? state : `${state} ${formatSpan(untilMs - fromMs)}`;
}

interface AttemptBarOptions extends Pick<StateSpan, "fromMs" | "untilMs"> {
  readonly attempt: JobAttempt;
}

/** The states of an attempt over the whole time of the job; the text beside it says the same. */
function AttemptBar({ attempt: { spans }, fromMs, untilMs }: AttemptBarOptions) {
  const scale = WIDTH / Math.max(1, untilMs - fromMs);
  return (
    <svg
      className="timeline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      {spans.map((span) => (
        <rect
          key={`${span.fromMs} ${span.state}`}
          className={`tone-${toneOf(span.state)}`}
          x={Math.min(WIDTH - LEAST_WIDTH, (span.fromMs - fromMs) * scale)}
          width={Math.max(LEAST_WIDTH, (span.untilMs - span.fromMs) * scale)}
          height={HEIGHT}
        />
      ))}
    </svg>
  );
}
