import { stripVTControlCharacters } from "node:util";
import type { ClusterMetricsReply } from "@heddle/contracts/api/cluster";
import type { JobSummary } from "@heddle/contracts/api/job-replies";
import type { ModelReplica } from "@heddle/contracts/api/models";
import type { Worker } from "@heddle/contracts/api/workers";
import { type Column, printRows } from "../output/rows.ts";
import { type Terminal, visibleWidth } from "../output/terminal.ts";

const GIB = 2 ** 30;
const CONTROLS = /(?![\n])\p{Cc}/gu;

/** One reading of a cluster. */
export interface TopReading {
  readonly at: string;
  readonly metrics: ClusterMetricsReply;
  readonly workers: readonly Worker[];
  /** The jobs that have not ended, the newest first. */
  readonly jobs: readonly JobSummary[];
  /** More such jobs exist than are read. */
  readonly more_jobs: boolean;
}

type NodeGpu = Worker["gpus"][number] & { readonly node: string };
type NodeReplica = ModelReplica & { readonly node: string; readonly deployment: string };

const NODES: readonly Column<Worker>[] = [
  { header: "NODE", value: ({ name }) => name },
  { header: "KIND", value: ({ kind }) => kind },
  { header: "STATUS", value: ({ status }) => status },
  { header: "CPU", value: (node) => percent(node.cpu_percent) },
  { header: "MEMORY", value: (node) => gibShare(node.memory_used_bytes, node.memory_bytes) },
  { header: "TASKS", value: ({ jobs }) => (jobs ? String(jobs.tasks.length) : "") },
  { header: "GPUS HELD", value: ({ jobs }) => (jobs ? `${jobs.gpus_held}/${jobs.gpus}` : "") },
];

const GPUS: readonly Column<NodeGpu>[] = [
  { header: "GPU", value: ({ node, index }) => `${node}/${index}` },
  { header: "TYPE", value: ({ name, simulated }) => name + (simulated ? " (simulated)" : "") },
  { header: "USE", value: (gpu) => percent(gpu.utilization_percent) },
  { header: "MEMORY", value: (gpu) => gibShare(gpu.memory_used_bytes, gpu.memory_bytes) },
  { header: "HEAT", value: (gpu) => measured(gpu, `${Math.round(gpu.temperature_celsius)} C`) },
  { header: "POWER", value: (gpu) => measured(gpu, `${Math.round(gpu.power_watts)} W`) },
  { header: "FAULT", value: ({ fault }) => fault ?? "" },
];

const JOBS: readonly Column<JobSummary>[] = [
  { header: "JOB", value: ({ id }) => id },
  { header: "NAME", value: ({ name }) => name },
  { header: "STATE", value: ({ state }) => state },
  { header: "TASKS", value: ({ tasks }) => String(tasks) },
  { header: "GPUS", value: ({ gpu_count: gpus }) => String(gpus) },
  { header: "PROGRESS", value: (job) => progress(job) },
  { header: "LOSS", value: ({ progress: at }) => at?.loss?.toPrecision(4) ?? "" },
  { header: "PROJECT", value: ({ project }) => project },
];

const REPLICAS: readonly Column<NodeReplica>[] = [
  { header: "MODEL", value: ({ deployment }) => deployment },
  { header: "NODE", value: ({ node }) => node },
  { header: "PHASE", value: ({ phase }) => phase },
  { header: "RUNNING", value: ({ running }) => String(running) },
  { header: "WAITING", value: ({ waiting }) => String(waiting) },
  { header: "DEVICE", value: ({ device }) => device ?? "" },
];

/** Lines beside the rows: of the summary, and of each section an empty one and its head. */
const FIXED_LINES = 3 + 4 * 2;

/**
 * The reading as tables, of which a screen of this many lines shows a part each. The order of rows is
 * stable, so that a refresh moves nothing.
 */
export function topText(reading: TopReading, out: Terminal, lines = Infinity): string {
  const { workers, jobs, more_jobs: more } = reading;
  const nodes = workers.toSorted((a, b) => byText(a.name, b.name));
  const gpus = nodes.flatMap(({ name: node, gpus: own }) =>
    own.toSorted((a, b) => a.index - b.index).map((gpu) => ({ ...gpu, name: gpu.name, node })),
  );
  const replicas = nodes
    .flatMap(({ name: node, replicas: own }) => own.map((replica) => ({ ...replica, node })))
    .toSorted((a, b) => byText(a.deployment, b.deployment));
  const counts = [nodes, gpus, jobs, replicas].map(({ length }) => length);
  const [ofNodes = 0, ofGpus = 0, ofJobs = 0, ofReplicas = 0] = sharedLines(
    counts,
    lines - FIXED_LINES,
  );
  return [
    summary(reading),
    section(nodes, NODES, "no nodes", out, ofNodes),
    section(gpus, GPUS, "no GPUs", out, ofGpus),
    section(jobs, JOBS, "no jobs that wait or run", out, ofJobs) + (more ? "...\n" : ""),
    section(replicas, REPLICAS, "no replicas of models", out, ofReplicas),
  ].join("\n");
}

/** The lines of each section: short ones get all that they want, long ones share the rest. */
function sharedLines(wanted: readonly number[], lines: number): number[] {
  const given = wanted.map(() => 0);
  let left = lines;
  for (let round = 0; left > 0 && round < Math.max(...wanted); round++) {
    for (const [at, want] of wanted.entries()) {
      if (left <= 0 || want <= round) continue;
      given[at] = round + 1;
      left--;
    }
  }
  return given;
}

/** The lines that fit in a screen, each no longer than it is wide. */
export function fitted(text: string, columns: number, rows: number): string[] {
  const lines = text.replace(/\n$/, "").split("\n");
  const shown = lines.length > rows ? [...lines.slice(0, rows - 1), "..."] : lines;
  return shown.map((line) =>
    visibleWidth(line) > columns ? stripVTControlCharacters(line).slice(0, columns) : line,
  );
}

function summary({ at, metrics }: TopReading): string {
  const { raft, workers, gpus, requests, queues, tokens, jobs } = metrics;
  const states = Object.entries(jobs.by_state).filter(([, count]) => count > 0);
  const leader = raft ? `leader ${raft.leader ?? "none"}, term ${raft.term}` : "no group";
  const rate = `${Math.round(tokens.generated_per_second)} tokens/s`;
  return [
    `${at}  ${leader}`,
    `${workers.total} workers  ${gpus.used}/${gpus.total} GPUs used  ${rate}  ${requests.running} calls run, ${queues.dispatch + requests.waiting} wait`,
    `jobs: ${states.map(([name, count]) => `${count} ${name}`).join(", ") || "none"}`,
    "",
  ].join("\n");
}

function section<T>(
  rows: readonly T[],
  columns: readonly Column<T>[],
  none: string,
  out: Terminal,
  lines: number,
): string {
  if (rows.length === 0) return `${none}\n`;
  const isWhole = rows.length <= lines;
  // The last line says how many are left out.
  const shown = isWhole ? rows : rows.slice(0, Math.max(0, lines - 1));
  const pieces: string[] = [];
  const collecting = { ...out, write: (piece: string) => void pieces.push(piece) };
  const clean = columns.map((column) => ({
    ...column,
    value: (row: T) => column.value(row).replace(CONTROLS, "\ufffd"),
  }));
  printRows(shown, clean, "table", collecting);
  if (!isWhole) pieces.push(`... ${rows.length - shown.length} more\n`);
  return pieces.join("");
}

function progress({ progress: at }: JobSummary): string {
  if (!at) return "";
  return at.progress === null
    ? at.step === null
      ? ""
      : `step ${at.step}`
    : percent(at.progress * 100);
}

/** Simulated devices measure nothing. */
function measured({ simulated }: NodeGpu, text: string): string {
  return simulated ? "" : text;
}

function percent(value: number | null): string {
  return value === null ? "" : `${Math.round(value)} %`;
}

function gibShare(used: number | null, total: number | null): string {
  if (used === null || total === null) return "";
  return `${(used / GIB).toFixed(1)}/${(total / GIB).toFixed(1)} GiB`;
}

const byText = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
