import { createHmac, type KeyObject, timingSafeEqual } from "node:crypto";
import { StepQueue } from "@heddle/base/async/step-queue";
import { STEP_ITEMS, type Steps } from "@heddle/base/async/steps";
import { AppError } from "@heddle/base/errors";
import type { JobsQuery } from "@heddle/contracts/api/job-operations";
import type { JobSummary } from "@heddle/contracts/api/job-replies";
import type { JobState, SubmitJob } from "@heddle/contracts/api/job-spec";
import type { Page } from "@heddle/contracts/api/parameters";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { Inject } from "@nestjs/common";
import { PEPPER } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { ProgressBook } from "../../nodes/progress/progress-book.ts";
import { jsonBytes, MAX_PAGE_BYTES } from "../page.ts";
import { viewJob } from "./job-view.ts";

const MAC_BYTES = 16;

type MayRead = (project: string) => boolean;
type Filters = Omit<JobsQuery, "limit" | "cursor" | "consistency">;

/** Pages of jobs, one made at a time. */
export class JobList {
  readonly #control: ControlPlane;
  readonly #progress: Pick<ProgressBook, "of">;
  readonly #pepper: KeyObject;
  readonly #lists = new StepQueue("lists of jobs");

  /** The pepper signs the cursors. */
  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ProgressBook) progress: Pick<ProgressBook, "of">,
    @Inject(PEPPER) pepper: KeyObject,
  ) {
    this.#control = control;
    this.#progress = progress;
    this.#pepper = pepper;
  }

  /** Only jobs of projects that `mayRead` accepts. */
  page(query: JobsQuery, mayRead: MayRead): Promise<Page<JobSummary>> {
    const views = { progress: this.#progress, mayRead };
    return this.#lists.run(() => listJobs(this.#control, query, this.#pepper, views));
  }
}

/** The requested page of jobs, newest first. Its cursor is valid on every master. */
function* listJobs(
  { state, jobs }: Pick<ControlPlane, "state" | "jobs">,
  { limit, cursor, consistency: _, ...filters }: JobsQuery,
  pepper: KeyObject,
  { progress, mayRead }: { progress: Pick<ProgressBook, "of">; mayRead: MayRead },
): Steps<Page<JobSummary>> {
  const before = cursor === undefined ? undefined : openCursor(cursor, filters, pepper);
  const passes = filterOf(filters);
  const data: JobSummary[] = [];
  let last: JobRecord | undefined;
  let bytes = 0;
  let examined = 0;
  for (const id of jobs.submitted.newestBefore(before)) {
    if (++examined % STEP_ITEMS === 0) yield;
    const job = state.jobs.get(id);
    const spec = state.specs.get(id);
    if (!job || !spec || !mayRead(job.project) || !passes(job, spec)) continue;
    if (data.length === limit || bytes >= MAX_PAGE_BYTES) {
      const next = sealCursor(last!.submittedIndex, filters, pepper);
      return { object: "list", data, has_more: true, next_cursor: next };
    }
    const view = viewJob(state, job, progress.of(job));
    data.push(view);
    bytes += jsonBytes(view);
    last = job;
  }
  return { object: "list", data, has_more: false, next_cursor: null };
}

type FilteredSpec = Pick<SubmitJob, "algorithm" | "labels">;

/** A test of one job, with the texts of the filters parsed once. */
function filterOf({ state, algorithm, label = [], since, project, queue, name }: Filters) {
  const sinceMs = since === undefined ? Number.NEGATIVE_INFINITY : Date.parse(since);
  const states: ReadonlySet<JobState> | undefined = state && new Set(state);
  const labels = label.map((wanted): readonly [string, string | undefined] => {
    const [key = "", value] = wanted.split(/=(.*)/s);
    return [key, value];
  });
  return (job: JobRecord, spec: FilteredSpec): boolean => {
    if (job.submittedAtMs < sinceMs || states?.has(job.state) === false) return false;
    if (project !== undefined && job.project !== project) return false;
    if (queue !== undefined && job.queue !== queue) return false;
    if (name !== undefined && job.name !== name) return false;
    if (algorithm !== undefined && spec.algorithm !== algorithm) return false;
    return labels.every(
      ([key, value]) =>
        Object.hasOwn(spec.labels, key) && (value === undefined || spec.labels[key] === value),
    );
  };
}

/** A cursor: the last job seen and the filters, signed so that clients cannot forge one. */
function sealCursor(index: number, filters: Filters, pepper: KeyObject): string {
  return Buffer.concat([macOf(index, filters, pepper), Buffer.from(String(index))]).toString(
    "base64url",
  );
}

function openCursor(cursor: string, filters: Filters, pepper: KeyObject): number {
  const bytes = Buffer.from(cursor, "base64url");
  const index = Number(bytes.subarray(MAC_BYTES).toString());
  const mac = bytes.subarray(0, MAC_BYTES);
  if (mac.length === MAC_BYTES && timingSafeEqual(mac, macOf(index, filters, pepper))) return index;
  const message = "Invalid value for 'cursor': it is not of this list with these filters.";
  throw new AppError("invalid_value", message, { param: "cursor" });
}

function macOf(index: number, filters: Filters, pepper: KeyObject): Buffer {
  const text = JSON.stringify(["jobs", index, filters]);
  return createHmac("sha256", pepper).update(text).digest().subarray(0, MAC_BYTES);
}
