import type { Project } from "@heddle/contracts/api/projects";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { amountOf } from "../number-flags.ts";
import { type Column, printRow, printRows } from "../output/rows.ts";

const BYTES_PER_GB = 1e9;

const COLUMNS: readonly Column<Project>[] = [
  { header: "NAME", value: ({ name }) => name },
  { header: "WEIGHT", value: ({ weight }) => String(weight) },
  { header: "GPUS", value: ({ usage, quota }) => ofLimit(usage.gpus, quota.gpu_count) },
  { header: "GPU HOURS", value: ({ usage, quota }) => ofLimit(usage.gpu_hours, quota.gpu_hours) },
  { header: "MAX JOBS", value: ({ quota }) => textOrNone(quota.queue_length) },
  { header: "STORAGE", value: ({ usage, quota }) => storageOf(usage, quota) },
  { header: "SINCE", value: ({ usage }) => usage.window_start, wide: true },
];

/** `heddle projects list`. */
export async function listProjects(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const projects: Project[] = [];
  for await (const project of heddle.projects.list()) projects.push(project);
  printRows(projects, COLUMNS, format, data);
  return 0;
}

/** `heddle projects get <name>`. */
export async function getProject(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const project = await heddle.projects.get(command.args[0] ?? "");
  printRow(project, COLUMNS, format, data);
  return 0;
}

/** `heddle projects set <name>`: unset flags get the defaults. */
export async function setProjectCommand(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const flags = command.opts() as Record<string, string | undefined>;
  const weight = amountOf(flags, "weight");
  const storageGb = amountOf(flags, "storageGb");
  const quota = {
    gpu_count: amountOf(flags, "gpus"),
    gpu_hours: amountOf(flags, "gpuHours"),
    queue_length: amountOf(flags, "maxJobs"),
    storage_bytes: storageGb === undefined ? undefined : Math.round(storageGb * BYTES_PER_GB),
  };
  const settings = { ...(weight === undefined ? {} : { weight }), quota };
  const project = await heddle.projects.set(command.args[0] ?? "", settings);
  printRow(project, COLUMNS, format, data);
  return 0;
}

function ofLimit(used: number, limit: number | null): string {
  const text = String(Math.round(used * 100) / 100);
  return limit === null ? text : `${text}/${limit}`;
}

function storageOf({ storage_bytes: used }: Project["usage"], quota: Project["quota"]): string {
  const gb = (bytes: number) => Math.round((bytes / BYTES_PER_GB) * 1_000) / 1_000;
  const limit = quota.storage_bytes;
  return limit === null ? `${gb(used)} GB` : `${gb(used)}/${gb(limit)} GB`;
}

function textOrNone(value: number | null): string {
  return value === null ? "" : String(value);
}
