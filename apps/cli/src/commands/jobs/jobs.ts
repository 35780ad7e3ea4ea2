import { abortableDelay } from "@heddle/base/async/abortable-delay";
import type { JobFilters } from "@heddle/client/resources/jobs/jobs";
import type { Job, JobSummary } from "@heddle/contracts/api/job-replies";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../../command-context.ts";
import { watchInterrupts } from "../../interrupt.ts";
import { wholeNumberOf } from "../../number-flags.ts";
import { progressText } from "../../output/job-progress.ts";
import { type Column, isRecordFormat, printRecord, printRows } from "../../output/rows.ts";
import { writeBlockers } from "./job-explain.ts";
import { resolveJobId } from "./job-id.ts";
import { printFailure } from "./job-watch.ts";

const LIST_AGAIN_MS = 2_000;

const COLUMNS: readonly Column<JobSummary>[] = [
  { header: "ID", value: (job) => job.id },
  { header: "NAME", value: (job) => job.name },
  { header: "STATE", value: (job) => job.state },
  { header: "TASKS", value: (job) => String(job.tasks) },
  { header: "GPUS", value: (job) => String(job.gpu_count) },
  { header: "PROGRESS", value: (job) => percent(job.progress?.progress) },
  { header: "AGE", value: (job) => ageOf(job.submitted_at, Date.now()) },
  { header: "REASON", value: (job) => job.failure?.reason ?? "" },
  { header: "PROJECT", value: (job) => job.project, wide: true },
  { header: "QUEUE", value: (job) => job.queue, wide: true },
  { header: "PRIORITY", value: (job) => String(job.priority), wide: true },
  { header: "QOS", value: (job) => job.qos_level, wide: true },
  { header: "ATTEMPT", value: (job) => String(job.attempt), wide: true },
  { header: "SUBMITTED", value: (job) => job.submitted_at, wide: true },
];

interface ListFlags {
  readonly state?: string;
  readonly project?: string;
  readonly queue?: string;
  readonly name?: string;
  readonly algorithm?: string;
  readonly label?: string;
  readonly since?: string;
  readonly limit: string;
  readonly watch?: boolean;
}

/** `heddle jobs list`. */
export async function listJobsCommand(command: Command): Promise<number> {
  const context = commandContext(command);
  const { limit: wanted, watch, ...filters } = command.opts() as ListFlags;
  // The cluster refuses an unknown state and lists the known ones.
  const query = { ...filters, limit: wholeNumberOf("--limit", wanted) } as JobFilters;
  if (!watch) return printList(context, query);
  const interrupts = watchInterrupts();
  try {
    while (!interrupts.signal.aborted) {
      if (context.data.isTty) context.data.control("\x1b[H\x1b[2J");
      await printList(context, query, interrupts.signal);
      await abortableDelay(LIST_AGAIN_MS, interrupts.signal);
    }
  } finally {
    interrupts.release();
  }
  return 130;
}

async function printList(
  { heddle, data, messages, format }: CommandContext,
  query: JobFilters,
  signal?: AbortSignal,
): Promise<number> {
  const { data: jobs, has_more: hasMore } = await heddle.jobs.list(query, { signal }).page();
  printRows(jobs, COLUMNS, format, data);
  if (hasMore) messages.write("more jobs exist; use --limit (up to 1000) or a filter\n");
  return 0;
}

/** `heddle jobs get <job>`. */
export async function getJob(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const job = await heddle.jobs.get(await resolveJobId(heddle, command.args[0]));
  if (format !== "table" && format !== "wide") {
    printRecord(job, job.id, format, data);
    return 0;
  }
  const rows = [...factsOf(job)].filter(([, value]) => value !== "");
  for (const [name, value] of rows) data.write(`${data.paint("dim", name.padEnd(12))}${value}\n`);
  if (job.failure) printFailure(job.failure, data);
  if (job.task_list.length > 0) printTasks(job, { format, data });
  if (job.explanation) writeBlockers(job.explanation, data);
  return 0;
}

function* factsOf(job: Job): Generator<readonly [string, string]> {
  yield ["id", job.id];
  yield ["name", job.name];
  yield ["state", `${job.state} since ${job.since}`];
  yield ["project", `${job.project}, queue ${job.queue}, priority ${job.priority}`];
  yield ["attempt", `${job.attempt} (${job.failures} failures, ${job.losses} losses)`];
  yield ["submitted", job.submitted_at];
  yield ["started", job.started_at ?? ""];
  yield ["ended", job.ended_at ?? ""];
  yield ["progress", job.progress ? progressText(job.progress) : ""];
  yield* trainingOf(job);
  yield ["waits for", job.waiting_for.join(", ")];
}

/** Rows for a training job or one with artifacts. */
function* trainingOf({ checkpoint, training, model }: Job): Generator<readonly [string, string]> {
  const step = checkpoint?.step === null ? "" : ` at step ${checkpoint?.step}`;
  const saved = checkpoint?.name ? `${checkpoint.name}${step}, attempt ${checkpoint.attempt}` : "";
  yield ["checkpoint", saved];
  const shards = (training?.shards ?? []).map(({ shard, name, parameter_server: id, state }) => {
    return `${shard} on ${name ?? id}${state === "ready" ? "" : ` (${state})`}`;
  });
  yield ["shards", shards.join(", ")];
  const why = model?.message ? `: ${model.message}` : "";
  yield ["model", model ? `${model.id} is ${model.state}${why}` : ""];
}

function printTasks(job: Job, { format, data }: Pick<CommandContext, "format" | "data">): void {
  printRows(
    job.task_list,
    [
      { header: "RANK", value: (task) => String(task.rank) },
      { header: "NODE", value: (task) => task.node_name ?? task.node },
      {
        header: "DEVICES",
        value: ({ devices, simulated }) =>
          devices.join(",") + (simulated && devices.length > 0 ? " (simulated)" : ""),
      },
      { header: "PHASE", value: (task) => task.phase },
      { header: "EXIT", value: (task) => (task.exit ? exitText(task.exit) : "") },
    ],
    format,
    data,
  );
}

function exitText({ exit_code: code, signal, reason }: NonNullable<Job["task_list"][0]["exit"]>) {
  return [reason ?? "", code === null ? "" : String(code), signal ?? ""].filter(Boolean).join(" ");
}

/**
 * `heddle jobs cancel|suspend|resume <job...>`: in order, until one fails. As records: one, or a
 * list if several ids are given.
 */
export function jobChange(verb: "cancel" | "suspend" | "resume") {
  return async (command: Command): Promise<number> => {
    const { heddle, messages, data, format } = commandContext(command);
    const isRecord = isRecordFormat(format);
    const changed: Job[] = [];
    try {
      for (const given of command.args) {
        const job = await heddle.jobs[verb](await resolveJobId(heddle, given));
        changed.push(job);
        if (format === "name") data.write(`${job.id}\n`);
        else if (!isRecord) messages.write(`${job.id} is ${job.state}\n`);
      }
    } finally {
      const record = command.args.length === 1 ? changed[0] : changed;
      if (isRecord && record) printRecord(record, "", format, data);
    }
    return 0;
  };
}

function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "" : `${Math.floor(share * 100)} %`;
}

/** The age of an ISO time: `42s`, `7m`, `3h`, `2d`. */
function ageOf(iso: string, nowMs: number): string {
  const seconds = Math.max(0, Math.floor((nowMs - Date.parse(iso)) / 1_000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7_200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
