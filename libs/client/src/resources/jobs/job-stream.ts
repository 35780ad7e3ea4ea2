import type { JobEvent, JobProgressEvent } from "@heddle/contracts/api/events";
import type { Job } from "@heddle/contracts/api/job-replies";
import type { JobPhase } from "@heddle/contracts/api/job-spec";
import { HeddleError } from "../../errors.ts";
import { pathPart } from "../../path-part.ts";
import { resumingStream } from "../../resuming.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** A job entered a state. */
export type JobStateUpdate = Omit<JobEvent, "type" | "object"> & { readonly type: "state" };

/** A progress report of a job. It has no position, so a resumed stream does not repeat it. */
export interface JobProgressUpdate extends JobProgressEvent {
  readonly type: "progress";
  /** The phase of the job at that time. */
  readonly phase: JobPhase;
}

export type JobUpdate = JobStateUpdate | JobProgressUpdate;

/** Which updates to return. */
export interface StreamOptions extends CallOptions {
  /** The `id` of the last known update; absent: from the submission on. */
  readonly after?: string | undefined;
}

const TERMINAL: ReadonlySet<string> = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
/** Empty streams, closed by a master that knows the job's end, after which there is no more. */
const MAX_EMPTY_STREAMS = 2;

/** Whether no update follows this phase. */
export function isTerminalPhase(phase: JobPhase): boolean {
  return TERMINAL.has(phase);
}

/** Every update of a job once and in order, across masters, up to its end. */
export async function* streamJob(
  transport: HttpTransport,
  id: string,
  { after, signal }: StreamOptions,
): AsyncGenerator<JobUpdate, void> {
  const path = `/jobs/${pathPart(id)}`;
  const now = () =>
    transport.json<Job>({ method: "GET", path, query: { consistency: "strong" }, signal });
  let phase: JobPhase | undefined;
  let emptyStreams = 0;
  const request = { path: `${path}/events`, after, signal, confirm: now };
  for await (const item of resumingStream(transport, request)) {
    if (item === "broken") continue;
    if (item === "closed") {
      // A master that shuts down closes its streams too, so only the job's own end is final.
      const isEnded = await now().then(({ phase }) => isTerminalPhase(phase), notWhilePassing);
      if (isEnded && ++emptyStreams > MAX_EMPTY_STREAMS) return;
    } else if (item.type === "progress") {
      const progress = JSON.parse(item.data) as JobProgressEvent;
      phase ??= (await now()).phase;
      yield { type: "progress", phase, ...progress };
    } else if (item.data !== "") {
      const update = { ...(JSON.parse(item.data) as JobEvent), type: "state" as const };
      emptyStreams = 0;
      phase = update.phase;
      yield update;
      if (isTerminalPhase(phase)) return;
    }
  }
}

/** Without a leader no master can confirm that the job has ended; a later connection can. */
function notWhilePassing(error: unknown): false {
  if (error instanceof HeddleError && error.retryable) return false;
  throw error;
}
