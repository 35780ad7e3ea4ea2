import { resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import { MAX_TASKS } from "@heddle/contracts/task-places";
import { type FlagHelp, wholeNumber } from "./node-flags.ts";
import { simulatedGpus } from "./simulated-gpus.ts";

/** The flags of a worker for its offer to jobs. */
export const OFFER_FLAGS = {
  "simulate-gpus": ["SPEC", "simulated GPUs, for example 8xH100-80GB"],
  labels: ["NAME=VALUE,...", "labels, for the node affinity of jobs"],
  taints: ["NAME,...", "taints; jobs need a matching toleration"],
  rack: ["NAME", "rack of this machine"],
  fabric: ["NAME", "InfiniBand fabric of this machine"],
  "local-ssd-gb": ["GB", "local SSD for jobs, in GB"],
  "io-operations-per-sec": ["N", "disk operations per second for jobs"],
  "network-gbps": ["GBPS", "network bandwidth for jobs, in Gbit/s"],
  "memory-mib": ["MIB", "memory for jobs and models, in MiB (default: a share of the machine's)"],
  "max-tasks": ["N", "maximum number of tasks (default: a share of 64 per CPU, at most 256)"],
  checkpoints: ["DIR", "checkpoint directory (default: with the tasks)"],
  "task-log-mib": ["MIB", "maximum log size per stream of a task, in MiB"],
  plugins: ["PLACE,...", "plugins: files, folders, packages, lists of them (.json)"],
  executor: [
    "KIND",
    "process, pod, slurm, or PLUGIN.NAME of a plugin: what tasks run as, and with pod models (default: process)",
  ],
  "artifacts-mib": ["MIB", "maximum total size of artifacts on this node, in MiB"],
  "artifacts-hours": ["HOURS", "retention of artifacts, in hours"],
  "artifacts-replica": [
    "DIR|s3://BUCKET/PREFIX",
    "shared storage for copies of artifacts and checkpoints",
  ],
  "task-users": [
    "FIRST-LAST",
    "user ids for tasks, or own (an own range if the worker may change users)",
  ],
  "task-isolation": ["KIND", "required or optional: whether tasks may run without isolation"],
  "task-hidden": ["PATH,...", "paths that tasks of the worker's own user cannot read"],
  "task-writable": ["PATH,...", "further paths that tasks of the worker's own user may write to"],
} as const satisfies Record<string, FlagHelp>;

const MAX_USER_ID = 4_294_967_294;
/** Labels, taints, racks and fabrics; jobs name them. */
const NAME_FORM = /^[\w./=:-]{1,128}$/;

/** The first and last user id, which are group ids as well. */
export interface UserRange {
  readonly first: number;
  readonly last: number;
}

/** A worker's offer to jobs, and how it runs them. */
export interface WorkerOffer {
  readonly simulatedGpus?: readonly Gpu[] | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly string[];
  readonly rack: string;
  readonly fabric: string;
  readonly localSsdBytes?: number | undefined;
  readonly ioOperationsPerSec?: number | undefined;
  readonly networkMbps?: number | undefined;
  /** Memory for jobs and models. */
  readonly memoryBytes?: number | undefined;
  /** The most tasks at a time. */
  readonly maxTasks?: number | undefined;
  /** The directory of checkpoints; if absent, they are in the tasks' directories. */
  readonly checkpointDirectory?: string | undefined;
  /** Plugins: files, folders, packages, and lists of them; absent for none. */
  readonly plugins?: readonly string[] | undefined;
  /** The executor of tasks; if absent, processes and containers of this machine. */
  readonly executor?: string | undefined;
  /** Bytes kept of each stream of a task. */
  readonly maxLogBytes?: number | undefined;
  /** Bounds of ended tasks' artifacts: total bytes and age. */
  readonly maxArtifactBytes?: number | undefined;
  /** A directory or `s3://BUCKET/PREFIX` for second copies of artifacts and checkpoints. */
  readonly artifactReplica?: string | undefined;
  readonly maxArtifactAgeMs?: number | undefined;
  /**
   * Users of tasks; `own`: the worker's. Absent: a default range if the worker may switch users.
   */
  readonly taskUsers?: UserRange | "own" | undefined;
  /** Runs tasks even if they cannot be isolated. */
  readonly isIsolationOptional?: boolean | undefined;
  /** Paths hidden from tasks of the worker's own user, and paths that they may write. */
  readonly hiddenPaths?: readonly string[] | undefined;
  readonly writablePaths?: readonly string[] | undefined;
}

/** Throws an AppError `invalid_value` that names the flag and its valid values. */
export function readOffer(flags: Readonly<Record<string, string | undefined>>): WorkerOffer {
  const simulate = flags["simulate-gpus"];
  const number = (flag: keyof typeof OFFER_FLAGS, max: number) =>
    wholeNumber(flag, flags[flag], 1, max);
  const localSsdGb = number("local-ssd-gb", 10_000_000);
  const networkGbps = number("network-gbps", 100_000);
  const logMib = number("task-log-mib", 1_048_576);
  const artifactsMib = number("artifacts-mib", 1_073_741_824);
  const memoryMib = number("memory-mib", 1_073_741_824);
  const artifactsHours = number("artifacts-hours", 876_000);
  return {
    ...(simulate !== undefined && { simulatedGpus: simulatedGpus(simulate) }),
    labels: readLabels(flags["labels"] ?? ""),
    taints: listOf("taints", flags["taints"] ?? "", NAME_FORM),
    rack: nameOf("rack", flags["rack"]),
    fabric: nameOf("fabric", flags["fabric"]),
    localSsdBytes: localSsdGb && localSsdGb * 1e9,
    ioOperationsPerSec: number("io-operations-per-sec", 1_000_000_000),
    networkMbps: networkGbps && networkGbps * 1_000,
    memoryBytes: memoryMib && memoryMib * 2 ** 20,
    maxTasks: number("max-tasks", MAX_TASKS),
    checkpointDirectory: flags["checkpoints"] && resolve(flags["checkpoints"]),
    plugins: listOf("plugins", flags["plugins"] ?? "", /^.{1,4096}$/),
    executor: executorOf(flags["executor"], flags["plugins"]),
    maxLogBytes: logMib && logMib * 2 ** 20,
    artifactReplica: replicaPlace(flags["artifacts-replica"]),
    maxArtifactBytes: artifactsMib && artifactsMib * 2 ** 20,
    maxArtifactAgeMs: artifactsHours && artifactsHours * 3_600_000,
    taskUsers: parseTaskUsers(flags["task-users"]),
    isIsolationOptional: isOptional(flags["task-isolation"]),
    hiddenPaths: pathsOf("task-hidden", flags["task-hidden"]),
    writablePaths: pathsOf("task-writable", flags["task-writable"]),
  };
}

/** Checked here, because an engine without the device fails only when it loads. */
export function readDevice(text: string | undefined): string | undefined {
  if (text === undefined || /^(cpu|\d{1,3})$/.test(text)) return text;
  throw new AppError("invalid_value", `--device takes cpu or a GPU's index, as 0, not ${text}`);
}

function parseTaskUsers(text: string | undefined): UserRange | "own" | undefined {
  if (text === undefined || text === "own") return text;
  const [, first = "", last = first] = /^(\d{1,10})(?:-(\d{1,10}))?$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  if (first !== "" && range.first > 0 && range.first <= range.last && range.last <= MAX_USER_ID)
    return range;
  const message = `--task-users takes FIRST-LAST or one user id, as 200000-200999, or \`own\`, not ${text}`;
  throw new AppError("invalid_value", message);
}

function executorOf(text: string | undefined, plugins = ""): string | undefined {
  if (text === undefined || /^(process|pod|slurm)$/.test(text)) return text;
  if (!isPluginExecutor(text)) {
    const message = `--executor takes process, pod, slurm or PLUGIN.NAME, not ${text.slice(0, 200)}`;
    throw new AppError("invalid_value", message);
  }
  if (plugins !== "") return text;
  throw new AppError("invalid_value", `--executor ${text} is of a plugin: add --plugins`);
}

/** Whether the executor has the form PLUGIN.NAME. */
export function isPluginExecutor(text = ""): boolean {
  return text.length <= 257 && /^[A-Za-z0-9][\w.-]*\.[A-Za-z0-9][\w.-]*$/.test(text);
}

function nameOf(flag: string, text = ""): string {
  if (text === "" || NAME_FORM.test(text)) return text;
  const form = "a name of 1 to 128 letters, digits and _./=:-";
  throw new AppError("invalid_value", `--${flag} takes ${form}, not ${text.slice(0, 200)}`);
}

function pathsOf(flag: string, text = ""): string[] {
  return listOf(flag, text, /^.{1,4096}$/).map((path) => resolve(path));
}

/** The place, where a directory is resolved: its readers may have other working directories. */
export function replicaPlace(text: string | undefined): string | undefined {
  return !text || text.startsWith("s3://") ? text : resolve(text);
}

function isOptional(text = "required"): boolean {
  if (text === "required" || text === "optional") return text === "optional";
  const message = `--task-isolation takes required or optional, not ${text}`;
  throw new AppError("invalid_value", message);
}

function readLabels(text: string): Record<string, string> {
  const pairs = listOf("labels", text, /^[\w./-]{1,128}=[\w./:-]{0,256}$/);
  return Object.fromEntries(
    pairs.map((pair) => {
      const equals = pair.indexOf("=");
      return [pair.slice(0, equals), pair.slice(equals + 1)];
    }),
  );
}

function listOf(flag: string, text: string, form: RegExp): string[] {
  const parts = text.split(",").filter((part) => part !== "");
  const wrong = parts.find((part) => !form.test(part));
  if (wrong === undefined) return parts;
  const takes = /^(plugins|task-)/.test(flag)
    ? "FILE,..."
    : flag === "labels"
      ? "NAME=VALUE,..."
      : "NAME,...";
  throw new AppError("invalid_value", `--${flag} takes ${takes}, not ${wrong}`);
}
