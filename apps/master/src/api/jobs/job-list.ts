import { createHmac, timingSafeEqual } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { type ListJobsQuery, listJobsQuery } from "@heddle/contracts/jobs";
import { validate } from "@heddle/contracts/validation";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import type { ControlState } from "@heddle/control/state";
import type { ProgressBook } from "../../orchestration/tasks/progress-book.ts";
import { jsonBytes, MAX_PAGE_BYTES, type PageView } from "../keys/page.ts";
import { viewJob } from "./job-view.ts";

const MAC_BYTES = 16;

type Filters = Omit<ListJobsQuery, "limit" | "cursor">;

/** The requested page of jobs, newest first. Its cursor is valid on every master. */
export function listJobs(
  state: ControlState,
  query: Record<string, unknown>,
  pepper: Uint8Array,
  progress: ProgressBook,
): PageView<ReturnType<typeof viewJob>> {
  const { limit, cursor, ...filters } = validate(listJobsQuery, query);
  const before = cursor === undefined ? undefined : openCursor(cursor, filters, pepper);
  const data: ReturnType<typeof viewJob>[] = [];
  let last: JobRecord | undefined;
  let bytes = 0;
  // The map is in the order of submission.
  const jobs = [...state.jobs.values()];
  for (let at = jobs.length - 1; at >= 0; at--) {
    const job = jobs[at]!;
    if (before !== undefined && job.submittedIndex >= before) continue;
    const spec = state.specs.get(job.id)!;
    if (!passes(job, spec, filters)) continue;
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

function passes(
  job: JobRecord,
  spec: { readonly algorithm?: string | undefined; readonly labels: Record<string, string> },
  { state, algorithm, label, since, project, queue, name }: Filters,
): boolean {
  if (state !== undefined && !state.includes(job.state)) return false;
  if (algorithm !== undefined && spec.algorithm !== algorithm) return false;
  if (project !== undefined && job.project !== project) return false;
  if (queue !== undefined && job.queue !== queue) return false;
  if (name !== undefined && job.name !== name) return false;
  if (since !== undefined && job.submittedAtMs < Date.parse(since)) return false;
  return (label ?? []).every((wanted) => {
    const [key = "", value] = wanted.split(/=(.*)/s);
    const has = spec.labels[key];
    return has !== undefined && (value === undefined || has === value);
  });
}

/** A cursor: the last job seen and the filters, signed so that clients cannot forge one. */
function sealCursor(index: number, filters: Filters, pepper: Uint8Array): string {
  return Buffer.concat([macOf(index, filters, pepper), Buffer.from(String(index))]).toString(
    "base64url",
  );
}

function openCursor(cursor: string, filters: Filters, pepper: Uint8Array): number {
  const bytes = Buffer.from(cursor, "base64url");
  const index = Number(bytes.subarray(MAC_BYTES).toString());
  const mac = bytes.subarray(0, MAC_BYTES);
  if (mac.length === MAC_BYTES && timingSafeEqual(mac, macOf(index, filters, pepper))) return index;
  const message = "Invalid value for 'cursor': it is not of this list with these filters.";
  throw new AppError("invalid_value", message, { param: "cursor" });
}

function macOf(index: number, filters: Filters, pepper: Uint8Array): Buffer {
  const text = JSON.stringify(["jobs", index, filters]);
  return createHmac("sha256", pepper).update(text).digest().subarray(0, MAC_BYTES);
}
