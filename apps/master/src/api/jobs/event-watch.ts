import { AppError } from "@heddle/base/errors";
import {
  comparePositions,
  type Position,
  parsePosition,
  positionText,
} from "@heddle/control/jobs/index/event-log";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { EventRecord, JobRecord } from "@heddle/control/jobs/records/records";
import type { ControlState } from "@heddle/control/state";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { EventStream, HEARTBEAT_MS } from "../../http/event-stream.ts";
import type { ProgressBook } from "../../orchestration/tasks/progress-book.ts";
import { viewFailure } from "./job-view.ts";
import { viewProgress } from "./progress-view.ts";
import type { StateChanges } from "./state-changes.ts";

/** The query parameters of both its routes. */
export const EVENT_QUERY = ["after", "limit", "consistency"];

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;
/** A watcher wakes at least this often without a change. */
const LOOK_MS = 30_000;

export interface EventRequest {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  /** Only this job's events. */
  readonly jobId?: string | undefined;
}

/** The events of the replicated log, as a list or as a resumable stream. */
export class EventWatch {
  readonly #control: ControlPlane;
  readonly #changes: StateChanges;
  readonly #progress: ProgressBook;

  constructor(control: ControlPlane, changes: StateChanges, progress: ProgressBook) {
    this.#control = control;
    this.#changes = changes;
    this.#progress = progress;
  }

  /** Answers in the format that the caller accepts. */
  async answer({ request, reply, jobId }: EventRequest): Promise<void> {
    const { headers, query } = request;
    const { after: given, limit } = query as Record<string, unknown>;
    const after = positionOf(headers["last-event-id"] ?? given);
    await this.#refuseLost(reply, after, jobId);
    if (headers.accept?.includes("text/event-stream")) {
      if (limit !== undefined) throw noLimit();
      return this.#stream(request, reply, after ?? this.#beginning(jobId), jobId);
    }
    const events = this.#read(after ?? { index: 0, ordinal: 0 }, limitOf(limit), jobId);
    const last = events.at(-1);
    const data = events.map((event) => viewEvent(this.#control.state, event));
    const next = last ? positionText(last) : null;
    await reply.send({ object: "list", data, last_event_id: next });
  }

  /** A job's stream begins with its submission; the cluster's with the next event. */
  #beginning(jobId: string | undefined): Position {
    return jobId === undefined ? this.#control.jobs.events.last : { index: 0, ordinal: 0 };
  }

  /** Refuses a position from which no stream can resume: its events are gone, or never existed. */
  async #refuseLost(
    reply: FastifyReply,
    after: Position | undefined,
    jobId: string | undefined,
  ): Promise<void> {
    // Position 0.0 means the oldest kept event.
    if (after === undefined || after.index === 0) return;
    const why = this.#control.jobs.events.isCompacted(after)
      ? `The events after ${positionText(after)} are no longer kept.`
      : (await this.#isBeyondLog(after)) && `The log has not come to ${positionText(after)}.`;
    if (!why) return;
    const list = jobId === undefined ? "/api/v1/jobs" : `/api/v1/jobs/${jobId}`;
    reply.header("link", `<${list}>; rel="collection"`);
    const message = `${why} Read ${list}, and watch from now on.`;
    throw new AppError("gone", message, { param: "Last-Event-ID" });
  }

  /** Whether no master knows the position: it precedes a restore, or is invented. */
  async #isBeyondLog({ index }: Position): Promise<boolean> {
    if (index <= this.#control.appliedIndex) return false;
    // This master may lag behind; if that cannot be checked, the caller must retry.
    await this.#control.group?.readBarrier();
    return index > this.#control.appliedIndex;
  }

  #read(after: Position, limit: number, jobId: string | undefined): EventRecord[] {
    const found: EventRecord[] = [];
    for (const event of this.#control.jobs.events.after(after)) {
      if (jobId !== undefined && !isOfJob(event, jobId)) continue;
      found.push(event);
      if (found.length === limit) break;
    }
    return found;
  }

  async #stream(
    request: FastifyRequest,
    reply: FastifyReply,
    from: Position,
    jobId: string | undefined,
  ): Promise<void> {
    reply.hijack();
    const gone = new AbortController();
    reply.raw.once("close", () => gone.abort());
    const stream = new EventStream(reply.raw, {
      heartbeatMs: HEARTBEAT_MS,
      onOpen: () => ({ "x-request-id": request.id }),
    });
    // The start of the stream, so that a client without events can resume too.
    stream.write(`id: ${positionText(from)}\nretry: 1000\n\n`);
    let position = from;
    let progressAtMs: number | undefined;
    const tellProgress = (job: JobRecord | undefined) => {
      const seen = job && this.#progress.of(job);
      if (!seen || seen.latest.atMs === progressAtMs) return;
      progressAtMs = seen.latest.atMs;
      // No id: progress is no event and is not replayed.
      const data = JSON.stringify({ job_id: job.id, ...viewProgress(job, seen) });
      stream.write(`event: progress\ndata: ${data}\n\n`);
    };
    while (!gone.signal.aborted) {
      const events = this.#read(position, MAX_LIMIT, jobId);
      const job = jobId === undefined ? undefined : this.#control.state.jobs.get(jobId);
      // A position beyond the job's end has seen all of it.
      if (job && isTerminal(job.state) && position.index > job.changedIndex) break;
      // No event of a job follows its end.
      if (job && isTerminal(job.state) && events.length < MAX_LIMIT) tellProgress(job);
      for (const event of events) {
        const data = JSON.stringify(viewEvent(this.#control.state, event));
        stream.write(`id: ${positionText(event)}\nevent: ${event.what.type}\ndata: ${data}\n\n`);
      }
      const isMore = events.length === MAX_LIMIT;
      // Skip other jobs' events too, which each change would otherwise scan again.
      position = isMore ? events.at(-1)! : later(position, this.#control.jobs.events.last);
      tellProgress(job);
      await stream.drained();
      if (isMore) continue;
      if (job && isTerminal(job.state)) break;
      await this.#changes.next(LOOK_MS, gone.signal);
    }
    stream.end();
  }
}

function later(a: Position, b: Position): Position {
  return comparePositions(a, b) < 0 ? b : a;
}

function isOfJob({ what }: EventRecord, jobId: string): boolean {
  return what.type === "job" && what.jobId === jobId;
}

/** An event as the API shows it; a job's end has its whole failure. */
function viewEvent(state: ControlState, event: EventRecord) {
  const { what, atMs } = event;
  const head = { id: positionText(event), object: "event", at: new Date(atMs).toISOString() };
  if (what.type === "node") {
    const { nodeId, state: nodeState, why } = what;
    const node_name = state.nodes.get(nodeId)?.offer.name ?? null;
    return { ...head, type: "node", node: nodeId, node_name, state: nodeState, why: why ?? null };
  }
  const job = state.jobs.get(what.jobId);
  const isEnd = what.state === "failed";
  const failure = isEnd && job?.failure ? job.failure : what.failure;
  return {
    ...head,
    type: "job",
    job_id: what.jobId,
    name: job?.name ?? null,
    project: what.project,
    state: what.state,
    phase: what.state.toUpperCase(),
    from: what.from ?? null,
    attempt: what.attempt,
    why: what.why ?? null,
    failure: failure ? viewFailure(state, failure) : null,
  };
}

function positionOf(given: unknown): Position | undefined {
  if (given === undefined || given === "") return undefined;
  const position = typeof given === "string" ? parsePosition(given) : undefined;
  if (position && comparePositions(position, { index: 0, ordinal: 0 }) >= 0) return position;
  const message = "Invalid value for 'Last-Event-ID': expected the id of an event, as `1042.0`.";
  throw new AppError("invalid_value", message, { param: "Last-Event-ID" });
}

function noLimit(): AppError {
  const message = "A stream of events has no end, and so no 'limit': leave it out.";
  return new AppError("invalid_value", message, { param: "limit" });
}

function limitOf(given: unknown): number {
  if (given === undefined) return DEFAULT_LIMIT;
  const limit = typeof given === "string" && /^\d{1,6}$/.test(given) ? Number(given) : 0;
  if (limit >= 1 && limit <= MAX_LIMIT) return limit;
  const message = `Invalid value for 'limit': expected 1 to ${MAX_LIMIT}.`;
  throw new AppError("invalid_value", message, { param: "limit" });
}
