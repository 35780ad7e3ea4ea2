import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { FAILURE_REASONS } from "@heddle/contracts/api/job-spec";
import type { LeaseTask } from "@heddle/contracts/generated/heddle/v1/LeaseTask";
import type { StartTask } from "@heddle/contracts/generated/heddle/v1/StartTask";
import type { TaskCommand } from "@heddle/contracts/generated/heddle/v1/TaskCommand";
import type { TaskExit__Output } from "@heddle/contracts/generated/heddle/v1/TaskExit";
import type { TaskId } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { TaskReportEntry, WorkerReport } from "@heddle/control/jobs/records/commands";
import { desiredTaskState } from "@heddle/control/jobs/records/desired-task-state";
import {
  type ArtifactRecord,
  type JobsState,
  type ServerRecord,
  type TaskExitRecord,
  type TaskRecord,
  taskKey,
} from "@heddle/control/jobs/records/records";
import { executorOf } from "@heddle/control/jobs/records/task-request";
import type { TaskSecrets } from "../../task-output/task-secrets.ts";
import { inputOrders } from "./input-orders.ts";

const BYTES_PER_GB = 1e9;
/** Grace period of a task whose checkpoint is not needed. */
const LEAVE_MS = 5_000;
/** How long the next attempts wait for a lost parameter server that may have the only checkpoint. */
const AWAIT_SERVER_MS = 600_000;

const ORDER = ["reserved", "leased", "starting", "running", "stopping", "exited"] as const;

/**
 * The command to a worker that leads one of its tasks to the desired state; undefined if it is
 * reached. `status` is undefined for a task that the worker does not have.
 */
export function commandForTask(
  state: JobsState,
  record: TaskRecord,
  status: TaskStatus__Output | undefined,
  nowMs: number,
  secrets: TaskSecrets,
): TaskCommand | undefined {
  const task = idOf(record);
  const job = state.jobs.get(record.jobId);
  const desired = desiredTaskState(job, record);
  const hasEnded = status?.phase === "exited";
  if (desired.order === "forget") {
    if (!status) return undefined;
    const dropArtifacts = record.exit?.reason === "StorageExceeded";
    return hasEnded
      ? { forget: { task, dropArtifacts } }
      : stopOrder(task, "the masters hold it for ended");
  }
  if (hasEnded) return undefined;
  if (desired.order === "stop") {
    if (desired.byMs === undefined) return stopOrder(task, desired.why);
    const graceMs = Math.max(0, Math.round(desired.byMs - nowMs));
    return { stop: { task, checkpoint: desired.checkpoint, graceMs, why: desired.why } };
  }
  const spec = state.specs.get(record.jobId);
  if (!job || !spec) return undefined;
  if (!status) {
    // A task that was leased and is gone has ended (`missingTaskReport`).
    if (record.phase !== "reserved") return undefined;
    const logGrant = secrets.logGrant(record, record.nodeId);
    const lease = leaseOf(record, spec, job.tasks, job.checkpoint?.name ?? "");
    return { lease: { ...withInputs(lease, state, spec), logGrant } };
  }
  if (desired.order !== "start" || status.phase !== "leased") return undefined;
  const gang = gangOf(state, record, job.tasks);
  return gang && { start: startOf(state, record, gang, secrets, nowMs) };
}

function startOf(
  state: JobsState,
  record: TaskRecord,
  gang: readonly TaskRecord[],
  secrets: TaskSecrets,
  nowMs: number,
): StartTask {
  const peers = gang.map(({ rendezvous = "" }) => rendezvous);
  const nodes = gang.map(({ nodeId }) => nodeId);
  const spec = state.specs.get(record.jobId);
  const secretVariables = spec?.secret_variables && secrets.variables(spec);
  const base = { task: idOf(record), peers, nodes, ...(secretVariables && { secretVariables }) };
  const shards = state.jobs.get(record.jobId)?.shards;
  if (!shards) return base;
  // A task whose server is gone will end because of it.
  const parameterServers = shards.map((id) => state.servers.get(id)?.address ?? "");
  const graceMs = (spec?.checkpoint_config.grace_seconds ?? 0) * 1_000;
  const maxRunMs = (spec?.max_runtime_hours ?? 0) * 3_600_000;
  const runMs = maxRunMs > 0 ? maxRunMs + graceMs : 0;
  return {
    ...base,
    parameterServers,
    readyServers: addressesOf(state, ({ state }) => state === "ready"),
    lostServers: addressesOf(state, ({ state, lostAtMs = 0 }) => {
      return state === "lost" && nowMs - lostAtMs < AWAIT_SERVER_MS;
    }),
    jobToken: secrets.attemptToken(record),
    ticket: secrets.ticket(record, parameterServers, runMs),
  };
}

/**
 * Whether a task was leased before a restore and is not the one to be leased now under the same
 * name. A task that the backup has as leased is the same one.
 */
export function isOfEarlierCluster(
  { phase }: Pick<TaskRecord, "phase">,
  status: Pick<TaskStatus__Output, "cluster"> | undefined,
  cluster: string,
): boolean {
  return phase === "reserved" && status !== undefined && !["", cluster].includes(status.cluster);
}

/** The command to a worker for a task without a record. */
export function commandForUnknownTask(status: TaskStatus__Output): TaskCommand | undefined {
  const { task } = status;
  if (!task) return undefined;
  if (status.phase === "exited") return { forget: { task } };
  return stopOrder(task, "its attempt has ended");
}

/** The part of a status that is not in the log yet. */
export function statusDelta(
  record: TaskRecord,
  status: TaskStatus__Output,
): TaskReportEntry | undefined {
  if (record.phase === "exited") return undefined;
  const phase = ORDER.find((name) => name === status.phase);
  if (phase === undefined || phase === "reserved") return undefined;
  const base = {
    ...idOf(record),
    rendezvous: status.rendezvous.slice(0, MAX_ADDRESS) || undefined,
  };
  // The stop request must be logged before the exit, to distinguish it from success.
  const askedFirst = phase === "exited" && status.exit?.asked === true && !record.asked;
  if (askedFirst && record.phase !== "stopping") return { ...base, phase: "stopping" };
  if (phase === "exited") {
    const sickDevices = status.exit?.sickDevices ?? [];
    return {
      ...base,
      phase,
      exit: exitOf(status),
      ...(sickDevices.length > 0 && { sickDevices: sickDevices.slice(0, MAX_SICK_DEVICES) }),
    };
  }
  const isChanged = record.phase === "lost" || ORDER.indexOf(phase) > ORDER.indexOf(record.phase);
  return isChanged ? { ...base, phase } : undefined;
}

/** The exit of a task that its worker has lost, as after the loss of a disk. */
export function missingTaskReport(record: TaskRecord, nowMs: number): TaskReportEntry | undefined {
  if (record.phase === "reserved" || record.phase === "exited") return undefined;
  const message = "its worker does not have it any more";
  return {
    ...idOf(record),
    phase: "exited",
    exit: { reason: "NodeLost", message, endedAtMs: nowMs },
  };
}

function exitOf({ exit }: TaskStatus__Output): TaskExitRecord {
  const reason = FAILURE_REASONS.find((name) => name === exit?.reason);
  return {
    ...(reason && { reason }),
    ...(exit?.exitCode !== undefined && { exitCode: exit.exitCode }),
    ...(exit?.signal && { signal: exit.signal.slice(0, MAX_SIGNAL) }),
    ...(exit?.message && { message: exit.message.slice(0, MAX_MESSAGE) }),
    lastLines: latestLines(exit?.lastLines ?? []),
    endedAtMs: exit?.endedUnixMs ?? 0,
    ...(exit && exit.artifacts.length > 0 && { artifacts: artifactsOf(exit) }),
  };
}

/** The latest that fit into the bounds, oldest first. */
function latestLines(lines: readonly string[]): string[] {
  const taken: string[] = [];
  let left = MAX_LINES_BYTES;
  for (const line of lines.slice(-MAX_LINES).reverse()) {
    const text = line.slice(0, MAX_LINE);
    left -= Buffer.byteLength(text);
    if (left < 0) break;
    taken.unshift(text);
  }
  return taken;
}

/** Workers keep no artifact with another name or digest. */
function artifactsOf({ artifacts }: TaskExit__Output): ArtifactRecord[] {
  const known = artifacts.filter(
    ({ name, sha256 }) => name.length <= MAX_NAME && sha256.length === SHA256_DIGITS,
  );
  return known.slice(0, MAX_ARTIFACTS).map(({ name, bytes, sha256, pieces }) => {
    return {
      name,
      bytes,
      sha256,
      ...(pieces !== "" && { pieces: pieces.slice(0, SHA256_DIGITS) }),
    };
  });
}

/** As many of them, one at least, as one log entry takes. */
export function logEntryOf(reports: Iterable<TaskReportEntry>): TaskReportEntry[] {
  const taken: TaskReportEntry[] = [];
  let bytes = 0;
  for (const report of reports) {
    bytes += bytesOf(report);
    if (taken.length > 0 && bytes > MAX_REPORT_BYTES) break;
    taken.push(report);
    if (taken.length === MAX_REPORTS) break;
  }
  return taken;
}

/** The workers' reports by entries of the log: a report is in one as a whole. */
export function logEntriesOf(reports: Iterable<WorkerReport>): WorkerReport[][] {
  const entries: WorkerReport[][] = [];
  let count = Number.POSITIVE_INFINITY;
  let bytes = 0;
  for (const report of reports) {
    const added = report.reports.reduce((sum, each) => sum + bytesOf(each), 0);
    count += report.reports.length;
    bytes += added;
    if (count > MAX_REPORTS || bytes > MAX_REPORT_BYTES) {
      entries.push([]);
      count = report.reports.length;
      bytes = added;
    }
    entries.at(-1)?.push(report);
  }
  return entries;
}

function bytesOf(report: TaskReportEntry): number {
  return Buffer.byteLength(JSON.stringify(report));
}

/** The part of a task's exit that is logged. */
const MAX_LINES = 50;
const MAX_LINE = 4_096;
const MAX_LINES_BYTES = 16_384;
const MAX_MESSAGE = 2_048;
const MAX_SIGNAL = 32;
const MAX_ARTIFACTS = 256;
const MAX_NAME = 256;
const SHA256_DIGITS = 64;
const MAX_SICK_DEVICES = 64;
const MAX_ADDRESS = 512;
/** The most reports of tasks in one entry of the log. */
const MAX_REPORTS = 256;
const MAX_REPORT_BYTES = 512 * 1024;

/** In the workers' format. */
function idOf({ jobId, attempt, rank, incarnation = 0 }: TaskRecord) {
  return { jobId, attempt, rank, incarnation };
}

function stopOrder(task: TaskId, why: string): TaskCommand {
  return { stop: { task, checkpoint: false, graceMs: LEAVE_MS, why } };
}

/** The addresses of parameter servers, by id, so that every task of a gang gets the same order. */
function addressesOf(
  { servers }: JobsState,
  isIncluded: (server: ServerRecord) => boolean,
): string[] {
  const included = [...servers.values()].filter(isIncluded);
  return included.toSorted((a, b) => (a.id < b.id ? -1 : 1)).map(({ address }) => address);
}

/** The tasks of every rank, or undefined while one has no address. */
function gangOf(state: JobsState, { jobId, attempt }: TaskRecord, tasks: number) {
  const gang: TaskRecord[] = [];
  for (let rank = 0; rank < tasks; rank++) {
    const task = state.tasks.get(taskKey(jobId, attempt, rank));
    if (!task?.rendezvous) return undefined;
    gang.push(task);
  }
  return gang;
}

function withInputs(lease: LeaseTask, state: JobsState, spec: SubmitJob): LeaseTask {
  if (!lease.spec || (spec.inputs === undefined && spec.when === undefined)) return lease;
  const when = JSON.stringify(spec.when ?? []);
  return { ...lease, spec: { ...lease.spec, inputs: inputOrders(state, spec), when } };
}

function leaseOf(
  record: TaskRecord,
  spec: SubmitJob,
  tasks: number,
  resumeFrom: string,
): LeaseTask {
  const { resources, checkpoint_config: checkpoint, monitoring_config: monitoring } = spec;
  const { command } = spec;
  return {
    task: idOf(record),
    devices: [...record.devices],
    gpuMilli: record.gpuMilli,
    spec: {
      jobName: spec.name,
      project: spec.project,
      executor: executorOf(spec),
      containerImage: spec.container_image ?? "",
      hostNetwork: spec.container_options?.network === "host",
      readOnly: spec.container_options?.read_only === true,
      shmBytes: Math.ceil((spec.container_options?.shm_gb ?? 0) * BYTES_PER_GB),
      profile: spec.container_options?.profile ?? "",
      queue: spec.queue,
      command: typeof command === "string" ? ["/bin/sh", "-c", command] : (command ?? []),
      workingDirectory: spec.working_directory ?? "",
      environment: spec.environment_variables,
      algorithm: spec.algorithm ?? "",
      config: JSON.stringify(spec.config),
      tasks,
      cpuMilli: Math.ceil((resources.cpu_cores * 1_000) / tasks),
      memoryBytes: Math.ceil((resources.memory_gb * BYTES_PER_GB) / tasks),
      diskBytes: Math.ceil(((resources.local_ssd_gb ?? 0) * BYTES_PER_GB) / tasks),
      maxRuntimeMs: Math.round((spec.max_runtime_hours ?? 0) * 3_600_000),
      graceMs: checkpoint.grace_seconds * 1_000,
      checkpointIntervalMs: Math.round((checkpoint.interval_seconds ?? 0) * 1_000),
      keepCheckpoints: checkpoint.keep,
      failureTolerance: spec.failure_tolerance,
      checkpointSignal: checkpoint.signal,
      hangTimeoutMs: Math.round((monitoring.hang_timeout_seconds ?? 0) * 1_000),
      progressIntervalMs: Math.round(monitoring.interval_seconds * 1_000),
      resumeFrom,
    },
  };
}
