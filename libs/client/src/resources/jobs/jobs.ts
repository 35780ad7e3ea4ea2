import type { EventPage } from "@heddle/contracts/api/events";
import type { JobArtifact, LogEntry } from "@heddle/contracts/api/job-operations";
import type {
  DryRun,
  Job,
  JobExplanation,
  JobMetrics,
  JobSummary,
  SubmittedJob,
} from "@heddle/contracts/api/job-replies";
import type { JobSpec, JobState } from "@heddle/contracts/api/job-spec";
import { NotFoundError } from "../../errors.ts";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, GetOptions, HttpTransport } from "../../transport.ts";
import { type DownloadOptions, downloadArtifact } from "./job-artifacts.ts";
import { type LogOptions, readLogs } from "./job-logs.ts";
import { isTerminalPhase, type JobUpdate, type StreamOptions, streamJob } from "./job-stream.ts";

/** Filters of a list; a job must match all of them. */
export interface JobFilters {
  /** Jobs per page, 1 to 1,000. */
  readonly limit?: number | undefined;
  readonly state?: JobState | readonly JobState[] | undefined;
  readonly algorithm?: string | undefined;
  /** `key` or `key=value`. */
  readonly label?: string | undefined;
  /** Submitted at this time (RFC 3339) or later. */
  readonly since?: string | undefined;
  readonly project?: string | undefined;
  readonly queue?: string | undefined;
  readonly name?: string | undefined;
}

/** Which events of a job to list. */
export interface JobEventOptions extends CallOptions {
  /** The `id` of the last known event. */
  readonly after?: string | undefined;
  /** 1 to 1,000; 100 by default. */
  readonly limit?: number | undefined;
}

/** Which reported numbers to return. */
export interface MetricOptions extends CallOptions {
  /** One name, or several; all by default. */
  readonly name?: string | readonly string[] | undefined;
  /** The first and the last step. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  /** The most points of each number, 2 to 2,000; 500 by default. */
  readonly points?: number | undefined;
  readonly attempt?: number | undefined;
  /** 0 by default. */
  readonly rank?: number | undefined;
}

/** Jobs: `heddle.jobs`. */
export class Jobs {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Submits a job. Repeated with the same idempotency key, it is the same job. */
  create(spec: JobSpec, options: ChangeOptions = {}): Promise<SubmittedJob> {
    return this.#transport.change({ method: "POST", path: "/jobs", body: spec }, options);
  }

  /** The jobs, newest first. */
  list({ state, ...filters }: JobFilters = {}, options: CallOptions = {}): Pages<JobSummary> {
    const states = state === undefined ? undefined : [state].flat().join(",");
    return new Pages(this.#transport, "/jobs", { ...filters, state: states }, options);
  }

  /**
   * The job as the master that answers knows it; an unknown one is read with strong consistency.
   */
  async get(id: string, { signal, consistency }: GetOptions = {}): Promise<Job> {
    const request = { method: "GET", path: pathOf(id), signal } as const;
    try {
      return await this.#transport.json<Job>({ ...request, query: { consistency } });
    } catch (error) {
      if (consistency !== undefined || !(error instanceof NotFoundError)) throw error;
      return this.#transport.json<Job>({ ...request, query: { consistency: "strong" } });
    }
  }

  cancel(id: string, options: ChangeOptions = {}): Promise<Job> {
    return this.#transport.change({ method: "DELETE", path: pathOf(id) }, options);
  }

  /** Checkpoints the job and releases its resources until it is resumed. */
  suspend(id: string, options: ChangeOptions = {}): Promise<Job> {
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/suspend` }, options);
  }

  resume(id: string, options: ChangeOptions = {}): Promise<Job> {
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/resume` }, options);
  }

  /** The result of submitting the spec now, without submitting it. */
  explain(spec: JobSpec, options?: CallOptions): Promise<DryRun>;
  /** Why the job waits; null if it does not. */
  explain(id: string, options?: CallOptions): Promise<JobExplanation | null>;
  async explain(
    job: JobSpec | string,
    { signal }: CallOptions = {},
  ): Promise<DryRun | JobExplanation | null> {
    if (typeof job === "string") return (await this.get(job, { signal })).explanation;
    const request = { method: "POST", path: "/jobs", body: job, signal } as const;
    return this.#transport.json({ ...request, query: { dry_run: true }, isRepeatable: true });
  }

  /** The log lines of its tasks. */
  logs(id: string, options: LogOptions = {}): AsyncGenerator<LogEntry, void> {
    return readLogs(this.#transport, id, options);
  }

  /** The numbers that a task of it has reported, by step. */
  metrics(id: string, { signal, name, ...range }: MetricOptions = {}): Promise<JobMetrics> {
    const query = { ...range, name: name === undefined ? undefined : [name].flat().join(",") };
    return this.#transport.json({ method: "GET", path: `${pathOf(id)}/metrics`, query, signal });
  }

  /** The artifacts of its latest attempt, by rank and name. */
  async artifacts(id: string, { signal }: CallOptions = {}): Promise<readonly JobArtifact[]> {
    const request = { method: "GET", path: `${pathOf(id)}/artifacts`, signal } as const;
    const list = await this.#transport.json<{ data: readonly JobArtifact[] }>({
      ...request,
      query: { consistency: "strong" },
    });
    return list.data;
  }

  /** The bytes of one artifact; an interrupted download resumes. */
  artifact(
    id: string,
    name: string,
    options: DownloadOptions = {},
  ): AsyncGenerator<Uint8Array, void> {
    const path = `${pathOf(id)}/artifacts/${pathPart(name)}`;
    return downloadArtifact(this.#transport, path, options);
  }

  /** Its kept events after a position, the oldest first. */
  events(id: string, { after, limit, signal }: JobEventOptions = {}): Promise<EventPage> {
    const path = `${pathOf(id)}/events`;
    return this.#transport.json({ method: "GET", path, query: { after, limit }, signal });
  }

  /** Its updates up to its end, across masters, without gaps or repeats. */
  stream(id: string, options: StreamOptions = {}): AsyncGenerator<JobUpdate, void> {
    return streamJob(this.#transport, id, options);
  }

  /** Resolves with the job when it has ended, successfully or not. */
  async wait(id: string, options: CallOptions = {}): Promise<Job> {
    for await (const { phase } of this.stream(id, options)) if (isTerminalPhase(phase)) break;
    return this.get(id, { ...options, consistency: "strong" });
  }
}

function pathOf(id: string): string {
  return `/jobs/${pathPart(id)}`;
}
