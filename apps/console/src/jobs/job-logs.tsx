import type { Heddle } from "@heddle/client/heddle";
import type { LogOptions } from "@heddle/client/resources/jobs/job-logs";
import type { LogEntry } from "@heddle/contracts/api/job-operations";
import type { Job } from "@heddle/contracts/api/job-replies";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { isEndedState } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "../ui/error-note.tsx";
import { formatCount } from "../ui/format.ts";
import { LogBuffer, linesWith } from "./log-buffer.ts";
import { LogView } from "./log-view.tsx";

const text = STRINGS.logs;
/** The lines of each log that are loaded at first. */
const TAIL_LINES = 5_000;
const POLL_MS = 1_000;
/** Lines of a long log are shaped while it is read, not all at its end. */
const BATCH_LINES = 5_000;
const STREAMS = ["both", "stdout", "stderr"] as const;

interface LogChoice {
  readonly attempt: number | undefined;
  readonly stream: (typeof STREAMS)[number];
  readonly isWhole: boolean;
}

/**
 * The output of a job's tasks, and what is written while the page is open. It is asked for again and again
 * from the last position, so that a tab holds one stream open and not two.
 */
export function JobLogs({ job }: { readonly job: Job }) {
  const { heddle } = useSession();
  const [choice, setChoice] = useState<LogChoice>({
    attempt: undefined,
    stream: "both",
    isWhole: false,
  });
  const [wanted, setWanted] = useState("");
  const [isFollowed, setFollowed] = useState(true);
  const { attempt, stream, isWhole } = choice;
  const feed = useMemo(
    () => new LogFeed(heddle, job.id, { attempt, stream, tail: isWhole ? undefined : TAIL_LINES }),
    [heddle, job.id, attempt, stream, isWhole],
  );
  const { data, error } = useQuery({
    queryKey: ["log", job.id, choice],
    queryFn: ({ signal }) => feed.read(signal),
    refetchInterval: isEndedState(job.state) ? false : POLL_MS,
    structuralSharing: false,
    staleTime: 0,
    gcTime: 0,
  });
  const lines = useMemo(() => linesWith(data?.lines ?? [], wanted), [data, wanted]);
  return (
    <div className="logs">
      <div className="filters">
        <LogFilters job={job} choice={choice} onChange={setChoice} />
        <label>
          {text.filter}
          <input value={wanted} onChange={({ target }) => setWanted(target.value)} />
        </label>
        <label className="check">
          <input
            type="checkbox"
            checked={isFollowed}
            onChange={({ target }) => setFollowed(target.checked)}
          />
          {text.follow}
        </label>
        <span className="muted">
          {text.lines(formatCount(lines.length))}
          {data && data.dropped > 0 && `, ${text.dropped(formatCount(data.dropped))}`}
        </span>
      </div>
      {error && <ErrorNote error={error} />}
      <LogView
        lines={lines}
        hasRanks={job.tasks > 1}
        isFollowed={isFollowed}
        onFollow={setFollowed}
        isLoading={!data && !error}
      />
    </div>
  );
}

interface LogFiltersOptions {
  readonly job: Job;
  readonly choice: LogChoice;
  readonly onChange: (choice: LogChoice) => void;
}

function LogFilters({ job, choice, onChange }: LogFiltersOptions) {
  const attempts = Array.from({ length: job.attempt }, (_, at) => at + 1);
  return (
    <>
      <label>
        {text.attempt}
        <select
          value={choice.attempt ?? ""}
          onChange={({ target: { value } }) =>
            onChange({ ...choice, attempt: value === "" ? undefined : Number(value) })
          }
        >
          <option value="">{text.latest}</option>
          {attempts.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      <label>
        {text.stream}
        <select
          value={choice.stream}
          onChange={({ target: { value } }) =>
            onChange({ ...choice, stream: STREAMS.find((each) => each === value) ?? "both" })
          }
        >
          {STREAMS.map((each) => (
            <option key={each} value={each}>
              {text[each]}
            </option>
          ))}
        </select>
      </label>
      {!choice.isWhole && (
        <button type="button" onClick={() => onChange({ ...choice, isWhole: true })}>
          {text.fromStart}
        </button>
      )}
    </>
  );
}

/** What was read of a log so far; each reading continues after the one before. */
class LogFeed {
  readonly #heddle: Heddle;
  readonly #id: string;
  readonly #options: LogOptions;
  readonly #buffer = new LogBuffer();

  constructor(heddle: Heddle, id: string, options: LogOptions) {
    this.#heddle = heddle;
    this.#id = id;
    this.#options = options;
  }

  async read(signal: AbortSignal) {
    const { cursor } = this.#buffer;
    const from = cursor === undefined ? {} : { cursor, tail: undefined };
    const entries: LogEntry[] = [];
    const log = this.#heddle.jobs.logs(this.#id, { ...this.#options, ...from, signal });
    for await (const entry of log) {
      if (entries.push(entry) >= BATCH_LINES) this.#buffer.add(entries.splice(0));
    }
    this.#buffer.add(entries);
    const { lines, dropped } = this.#buffer;
    return { lines, dropped };
  }
}
