import { AppError } from "@heddle/base/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { Worker } from "@heddle/contracts/api/workers";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { type Column, printChange, printRecord, printRow, printRows } from "../output/rows.ts";

const COLUMNS: readonly Column<Worker>[] = [
  { header: "ID", value: ({ id }) => id },
  { header: "NAME", value: ({ name }) => name },
  { header: "STATUS", value: status },
  { header: "KIND", value: ({ kind }) => kind },
  { header: "GPUS", value: gpus },
  { header: "CPU", value: (worker) => percent(worker.cpu_percent) },
  { header: "MODELS", value: models },
  { header: "TASKS", value: tasks },
  { header: "SHARDS", value: ({ shards }) => (shards ? String(shards.held) : "") },
  { header: "ADDRESS", value: ({ address }) => address, wide: true },
  { header: "VERSION", value: ({ version }) => version ?? "", wide: true },
  { header: "ISOLATION", value: ({ task_isolation: level }) => level ?? "", wide: true },
  { header: "REFUSES", value: ({ refuses_leader: why }) => why ?? "", wide: true },
  { header: "DRAINED BY", value: ({ jobs }) => jobs?.drain_by ?? "", wide: true },
];

/** `heddle workers list`. */
export async function listWorkers(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRows(await heddle.workers.list(), COLUMNS, format, data);
  return 0;
}

/** `heddle workers get <worker>`. */
export async function getWorker(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const worker = await heddle.workers.get(await idOf(heddle, command.args[0] ?? ""));
  if (format === "name") printRecord(worker, worker.id, format, data);
  else printRow(worker, COLUMNS, format, data);
  return 0;
}

/** `heddle workers drain <worker>`. */
export async function drainWorker(command: Command): Promise<number> {
  const context = commandContext(command);
  const { heddle } = context;
  const { deadline } = command.opts() as { deadline?: string };
  if (deadline !== undefined && !/^\d{1,6}(\.\d+)?$/.test(deadline)) {
    throw new AppError("invalid_value", `--deadline "${deadline}": give seconds, for example 600.`);
  }
  const id = await idOf(heddle, command.args[0] ?? "");
  const deadlineSeconds = deadline === undefined ? undefined : Number(deadline);
  const worker = await heddle.workers.drain(id, { deadlineSeconds });
  const { name, status, jobs } = worker;
  const end = jobs?.drain_by ?? "once";
  const sentence = `${name} is ${status}; what still runs is ended at ${end}`;
  printChange({ record: worker, name: worker.id, sentence }, context);
  return 0;
}

/** `heddle workers resume <worker>`. */
export async function resumeWorker(command: Command): Promise<number> {
  const context = commandContext(command);
  const { heddle } = context;
  const worker = await heddle.workers.resume(await idOf(heddle, command.args[0] ?? ""));
  const sentence = `${worker.name} is ${worker.status}`;
  printChange({ record: worker, name: worker.id, sentence }, context);
  return 0;
}

/** `heddle workers revoke <worker>`. */
export async function revokeWorker(command: Command): Promise<number> {
  const context = commandContext(command);
  const { heddle } = context;
  const worker = await heddle.workers.revoke(await idOf(heddle, command.args[0] ?? ""));
  const sentence = `the certificates of ${worker.name} are revoked`;
  printChange({ record: worker, name: worker.id, sentence }, context);
  return 0;
}

/** The id of the one node with this id or name. */
async function idOf(heddle: Heddle, given: string): Promise<string> {
  const workers = await heddle.workers.list();
  if (workers.some(({ id }) => id === given)) return given;
  const named = workers.filter(({ name }) => name === given);
  if (named.length === 1) return named[0]!.id;
  const message =
    named.length === 0
      ? `No worker has the id or name ${given}. \`heddle workers list\` shows them.`
      : `${named.length} workers have the name ${given}: give an id.`;
  throw new AppError(named.length === 0 ? "not_found" : "conflict", message);
}

/** A silent node's status includes the duration. */
function status({ status: word, silent_seconds: seconds }: Worker): string {
  return word === "suspect" || word === "lost" ? `${word} (silent for ${seconds} s)` : word;
}

/** Simulated devices are marked, and unhealthy ones are counted. */
function gpus({ gpus: devices }: Worker): string {
  const unhealthy = devices.filter((gpu) => gpu.fault !== null).length;
  return [
    String(devices.length),
    ...(devices[0] ? [devices[0].name] : []),
    ...(devices.some((gpu) => gpu.simulated) ? ["(simulated)"] : []),
    ...(unhealthy > 0 ? [`${unhealthy} unhealthy`] : []),
  ].join(" ");
}

/** The tasks that it runs of those that it takes, or why it takes none; empty for earlier masters. */
function tasks({ jobs, executor_fault: fault }: Worker): string {
  if (fault) return `none: ${fault}`;
  if (!jobs) return "";
  const { tasks: running, max_tasks: most } = jobs;
  return typeof most === "number" ? `${running.length}/${most}` : String(running.length);
}

function percent(value: number | null | undefined): string {
  return typeof value === "number" ? `${Math.round(value)} %` : "";
}

function models({ replicas = [] }: Worker): string {
  return replicas.map(({ deployment, phase }) => `${deployment}:${phase}`).join(" ");
}
