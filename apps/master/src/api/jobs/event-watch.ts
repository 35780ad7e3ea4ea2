import { grants as permits } from "@heddle/auth/scopes";
import { StepQueue } from "@heddle/base/async/step-queue";
import { STEP_ITEMS, type Steps } from "@heddle/base/async/steps";
import { AppError } from "@heddle/base/errors";
import type {
  ClusterEvent,
  EventPage,
  EventQuery,
  JobProgressEvent,
} from "@heddle/contracts/api/events";
import { phaseOf } from "@heddle/contracts/api/job-replies";
import {
  comparePositions,
  type Position,
  parsePosition,
  positionText,
} from "@heddle/control/jobs/index/event-log";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { EventRecord, JobRecord } from "@heddle/control/jobs/records/records";
import type { ControlState } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { HEARTBEAT_MS } from "../../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { EventStream } from "../../http/event-stream.ts";
import { type Caller, requestCaller } from "../../http/identity/caller.ts";
import { ProgressBook } from "../../nodes/progress/progress-book.ts";
import { viewFailure } from "./job-view.ts";
import { viewProgress } from "./progress-view.ts";
import { StateChanges } from "./state-changes.ts";

const DEFAULT_LIMIT = 100;
/** Events that a stream reads at once. */
const MAX_READ = 1_000;
/** A watcher wakes at least this often without a change. */
const POLL_MS = 30_000;

export interface EventRequest {
  readonly request: CallerRequest;
  readonly reply: FastifyReply;
  readonly query: EventQuery;
  /** Only this job's events. */
  readonly jobId?: string | undefined;
}

/** The owner of the events, and who reads them. */
interface Wanted {
  readonly jobId: string | undefined;
  readonly caller: Caller;
}

/** Events after a position, and the state at the end of the read. */
interface EventsRead {
  readonly events: readonly EventRecord[];
  /** Where the next read begins: after other jobs' events too. */
  readonly position: Position;
  readonly isMore: boolean;
  /** The job whose events were read. */
  readonly job: JobRecord | undefined;
}

/** The events of the replicated log, as a list or as a resumable stream. */
export class EventWatch {
  readonly #control: ControlPlane;
  readonly #changes: StateChanges;
  readonly #progress: ProgressBook;
  readonly #reads = new StepQueue("reads of events");

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(StateChanges) changes: StateChanges,
    @Inject(ProgressBook) progress: ProgressBook,
  ) {
    this.#control = control;
    this.#changes = changes;
    this.#progress = progress;
  }

  /** Answers in the format that the caller accepts. */
  async answer({ request, reply, query, jobId }: EventRequest): Promise<void> {
    const { headers } = request;
    const { after: given, limit } = query;
    const after = positionOf(headers["last-event-id"] ?? given);
    await this.#refuseLost(reply, after, jobId);
    if (headers.accept?.includes("text/event-stream")) {
      if (limit !== undefined) throw noLimit();
      return this.#stream(request, reply, after ?? this.#beginning(jobId), jobId);
    }
    const from = after ?? { index: 0, ordinal: 0 };
    const wanted = { jobId, caller: requestCaller(request) };
    const { events } = await this.#reads.run(() =>
      this.#read(from, limit ?? DEFAULT_LIMIT, wanted),
    );
    const last = events.at(-1);
    const data = events.map((event) => viewEvent(this.#control.state, event));
    const next = last ? positionText(last) : null;
    const page: EventPage = { object: "list", data, last_event_id: next };
    await reply.send(page);
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
      : (await this.#isBeyondLog(after)) && `The log has not reached ${positionText(after)}.`;
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

  *#read(after: Position, limit: number, { jobId, caller }: Wanted): Steps<EventsRead> {
    const log = this.#control.jobs.events;
    const events: EventRecord[] = [];
    let examined = 0;
    for (const event of log.after(after)) {
      if (++examined % STEP_ITEMS === 0) yield;
      if (jobId !== undefined && !isOfJob(event, jobId)) continue;
      if (!sees(caller, event)) continue;
      events.push(event);
      if (events.length === limit) break;
    }
    const isFull = events.length === limit;
    return {
      events,
      position: isFull ? events.at(-1)! : later(after, log.last),
      // A restore replaces the log.
      isMore: isFull || log !== this.#control.jobs.events,
      job: jobId === undefined ? undefined : this.#control.state.jobs.get(jobId),
    };
  }

  async #stream(
    request: CallerRequest,
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
    const wanted = { jobId, caller: requestCaller(request) };
    let position = from;
    let progressAtMs: number | undefined;
    const sendProgress = (job: JobRecord | undefined) => {
      const seen = job && this.#progress.of(job);
      if (!seen || seen.latest.atMs === progressAtMs) return;
      progressAtMs = seen.latest.atMs;
      // No id: progress is no event and is not replayed.
      const data: JobProgressEvent = { job_id: job.id, ...viewProgress(job, seen) };
      stream.write(`event: progress\ndata: ${JSON.stringify(data)}\n\n`);
    };
    while (!gone.signal.aborted) {
      const read = () => this.#read(position, MAX_READ, wanted);
      // Urgent: a stream that was accepted is not refused later.
      const { events, job, isMore, position: next } = await this.#reads.run(read, true);
      if (gone.signal.aborted) break;
      // A position beyond the job's end has seen all of it.
      if (job && isTerminal(job.state) && position.index > job.changedIndex) break;
      // No event of a job follows its end.
      if (job && isTerminal(job.state) && !isMore) sendProgress(job);
      for (const event of events) {
        const data = JSON.stringify(viewEvent(this.#control.state, event));
        stream.write(`id: ${positionText(event)}\nevent: ${event.what.type}\ndata: ${data}\n\n`);
      }
      position = next;
      sendProgress(job);
      await stream.drained();
      if (isMore) continue;
      if (job && isTerminal(job.state)) break;
      // Events that arrived since the read wake nothing.
      if (comparePositions(position, this.#control.jobs.events.last) < 0) continue;
      await this.#changes.next(POLL_MS, gone.signal);
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

/** Events of other projects' jobs are hidden, and those of nodes from callers of projects. */
function sees({ grants, scopes }: Caller, { what }: EventRecord): boolean {
  if (what.type === "job") return grants.may("jobs:read", what.project);
  return grants.isOfCluster || permits(scopes, "cluster:read");
}

/** An event as the API shows it; a job's end has its whole failure. */
function viewEvent(state: ControlState, event: EventRecord): ClusterEvent {
  const { what, atMs } = event;
  const at = new Date(atMs).toISOString();
  const head = { id: positionText(event), object: "event", at } as const;
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
    phase: phaseOf(what.state),
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
