import type { Verdict } from "../support/table.ts";
import type { JobAudit } from "./audit.ts";
import type { ChatOutcome } from "./chat-load.ts";
import type { JobLoad } from "./job-load.ts";
import type { LogFollower } from "./log-follower.ts";
import type { RoleTrend } from "./trends.ts";

/** What a run has left. */
export interface Judged {
  readonly audit: JobAudit;
  readonly jobs: Pick<JobLoad, "accepted" | "refused">;
  readonly left: readonly string[];
  readonly chats: readonly ChatOutcome[];
  readonly log: { readonly isValid: boolean; readonly said: string; readonly events: number };
  readonly watch: LogFollower;
  /** Undefined of a run that is too short for them. */
  readonly trends: readonly RoleTrend[] | undefined;
}

export function judge(lived: Judged): readonly Verdict[] {
  const { audit, jobs, left, chats, log, watch, trends } = lived;
  const accepted = jobs.accepted.length;
  const unanswered = chats.filter(({ isAnswered }) => !isAnswered).length;
  const none = (bar: string, list: readonly unknown[]): Verdict => ({
    bar,
    measured: `${list.length} did not`,
    pass: list.length === 0,
  });
  return [
    none("every submitted job is accepted", jobs.refused),
    none(`each of ${accepted} accepted jobs succeeds`, audit.lost),
    none("the log of each job is what it printed, once", audit.wrongLogs),
    {
      bar: "a job that is submitted again is not a second one",
      measured: `${audit.listed} jobs of ${accepted}`,
      pass: audit.listed === accepted,
    },
    {
      bar: "no node has a task when all jobs have ended",
      measured: `${left.length} tasks`,
      pass: left.length === 0,
    },
    {
      bar: `each of ${chats.length} answers is complete, if asked for again`,
      measured: `${unanswered} are not`,
      pass: unanswered === 0,
    },
    {
      bar: `a follower gets each of ${log.events} events once and in order`,
      measured: watch.faults[0] ?? `${watch.count}`,
      pass: watch.faults.length === 0 && watch.count >= log.events,
    },
    {
      bar: "the event log verifies",
      measured: log.said.split("\n").at(-1)?.slice(0, 80) ?? "",
      pass: log.isValid,
    },
    ...(trends ? [flatness(trends)] : []),
  ];
}

function flatness(trends: readonly RoleTrend[]): Verdict {
  const growing = trends.filter(({ isFlat }) => !isFlat).map(({ role }) => role);
  return {
    bar: "memory and descriptors of every role are flat",
    measured: growing.length === 0 ? "flat" : `${growing.join(", ")} grow`,
    pass: growing.length === 0,
  };
}
