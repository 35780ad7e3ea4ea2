import { accessSync, constants, existsSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { CATALOG_PROFILES, type CatalogProfile } from "@heddle/contracts/catalog";
import {
  type OFFER_FLAGS,
  readDevice,
  readOffer,
  replicaPlace,
} from "@heddle/node-agent/offer-flags";
import { findSource } from "@heddle/plugin-kit/loading/plugin-source";
import { dataDirectory } from "../connection.ts";
import { isBlockedPort } from "../http/blocked-ports.ts";

/** The options of `heddle up`; see its `--help`. */
export interface UpOptions {
  readonly masters: number;
  readonly workers: number;
  readonly parameterServers: number;
  /** The first master's HTTP port; the others follow. */
  readonly port: number;
  readonly dataDir: string;
  readonly modelsCache: string;
  /** A GGUF file to serve. */
  readonly modelFile: string | undefined;
  /** The models to start with; undefined if a file is served instead. */
  readonly profile: Profile | undefined;
  /** Simulated devices of each worker, marked in the table. */
  readonly simulatedGpus: string | undefined;
  /** Plugins of every master and worker. */
  readonly plugins: readonly string[];
  /** Flags of every worker about its tasks, its offers and its device. */
  readonly workerFlags: readonly string[];
  /** Certificates and TLS between the processes. */
  readonly tls: boolean;
  /** File with the keys that encrypt the masters' data. */
  readonly secretsKeyFile: string | undefined;
  /** Stop after the self-check. */
  readonly once: boolean;
  /** The lowest level of the processes' lines that is shown. */
  readonly logLevel: ProcessLogLevel;
}

export type Profile = CatalogProfile;
export type ProcessLogLevel = "debug" | "info" | "warn" | "error";

/** The flags as typed. */
export interface UpFlags {
  readonly masters: string;
  readonly workers: string;
  readonly parameterServers: string;
  readonly port: string;
  readonly data?: string;
  readonly modelsCache?: string;
  readonly model?: string;
  readonly profile?: string;
  readonly simulateGpus?: string;
  readonly plugins?: string;
  readonly executor?: string;
  readonly taskUsers?: string;
  readonly taskIsolation?: string;
  readonly taskWritable?: string;
  readonly labels?: string;
  readonly taints?: string;
  readonly rack?: string;
  readonly fabric?: string;
  readonly localSsdGb?: string;
  readonly ioOperationsPerSec?: string;
  readonly networkGbps?: string;
  readonly maxTasks?: string;
  readonly workerMemory?: string;
  readonly artifactsReplica?: string;
  readonly upstreams?: string;
  readonly device?: string;
  readonly tls?: boolean;
  readonly secretsKeyFile?: string;
  readonly once?: boolean;
  readonly verbose?: boolean;
  readonly logLevel: string;
}

const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
const MAX_MASTERS = 5;
const MAX_NODES = 64;

/** Checks every flag; throws `invalid_value` for the first invalid one. */
export function parseUpOptions(flags: UpFlags, env = process.env): UpOptions {
  const dataDir = dataDirectory(flags.data, env);
  const masters = count("--masters", flags.masters, 1, MAX_MASTERS);
  if (masters % 2 === 0)
    throw wrong("--masters", flags.masters, "1, 3 or 5 (a majority must exist)");
  const cache = flags.modelsCache ?? env["HEDDLE_MODELS_CACHE"];
  return {
    masters,
    workers: count("--workers", flags.workers, 0, MAX_NODES),
    parameterServers: count("--parameter-servers", flags.parameterServers, 0, MAX_NODES),
    port: firstPort(flags.port, masters),
    dataDir,
    modelsCache: cache ? resolve(cache) : join(dataDir, "models"),
    profile: chooseProfile(flags),
    modelFile: flags.model === undefined ? undefined : modelFile(flags.model),
    simulatedGpus: flags.simulateGpus,
    plugins: pluginPlaces(flags.plugins ?? ""),
    workerFlags: workerFlags(flags),
    tls: flags.tls ?? false,
    secretsKeyFile: secretsKeyFile(flags.secretsKeyFile ?? env["HEDDLE_SECRETS_KEY_FILE"]),
    once: flags.once ?? false,
    logLevel: flags.verbose ? "info" : oneOf("--log-level", flags.logLevel, LOG_LEVELS),
  };
}

/** Clients refuse to connect to a blocked port, so no master may listen there. */
function firstPort(text: string, masters: number): number {
  const port = count("--port", text, 1, 65_536 - masters);
  const used = Array.from({ length: masters }, (_, i) => port + i);
  const blocked = used.find(isBlockedPort);
  if (blocked === undefined) return port;
  const message = `--port "${text}": browsers and most clients block port ${blocked} (Fetch standard). Give another, for example --port 8080.`;
  throw new AppError("invalid_value", message);
}

function secretsKeyFile(text: string | undefined): string | undefined {
  return text ? resolve(text) : undefined;
}

function chooseProfile(flags: UpFlags): Profile | undefined {
  if (flags.profile !== undefined && flags.model !== undefined) {
    const message = "--profile and --model are mutually exclusive.";
    throw new AppError("invalid_value", message);
  }
  if (flags.profile !== undefined) return oneOf("--profile", flags.profile, CATALOG_PROFILES);
  return flags.model === undefined ? "demo" : undefined;
}

/** Checked as the workers check them, before anything starts. */
function workerFlags(flags: UpFlags): string[] {
  const offer = {
    "simulate-gpus": flags.simulateGpus,
    "task-users": flags.taskUsers,
    "task-isolation": flags.taskIsolation,
    "task-writable": flags.taskWritable,
    labels: flags.labels,
    taints: flags.taints,
    rack: flags.rack,
    fabric: flags.fabric,
    "local-ssd-gb": flags.localSsdGb,
    "io-operations-per-sec": flags.ioOperationsPerSec,
    "network-gbps": flags.networkGbps,
    "max-tasks": flags.maxTasks,
    "memory-mib": flags.workerMemory,
    "artifacts-replica": replicaPlace(flags.artifactsReplica),
    executor: flags.executor,
  } as const satisfies Partial<Record<keyof typeof OFFER_FLAGS, string | undefined>>;
  readOffer({ ...offer, plugins: flags.plugins });
  const passed = {
    ...offer,
    device: readDevice(flags.device),
    upstreams: flags.upstreams ? existingFile("--upstreams", flags.upstreams) : undefined,
  };
  return Object.entries(passed).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, value],
  );
}

/** A missing plugin is reported here, not only in the logs of masters and workers. */
function pluginPlaces(text: string): string[] {
  return text
    .split(",")
    .filter((part) => part !== "")
    .map((part) => {
      const path = resolve(part.replace(/^~(?=\/)/, homedir()));
      const isPackage = !existsSync(path) && !/[/\\.]/.test(part.replace(/^@[^/]*\//, ""));
      return isPackage ? installedPackage(part) : existingFile("--plugins", part);
    });
}

function installedPackage(name: string): string {
  try {
    return findSource({ from: name }).root;
  } catch (error) {
    throw new AppError("invalid_value", `--plugins: ${(error as Error).message}`);
  }
}

function existingFile(flag: string, text: string): string {
  const path = resolve(text.replace(/^~(?=\/)/, homedir()));
  if (existsSync(path)) return path;
  throw new AppError("invalid_value", `${flag}: there is no file ${path}. Check the path.`);
}

function count(flag: string, text: string, least: number, most: number): number {
  const value = /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least && value <= most) return value;
  throw wrong(flag, text, `a whole number from ${least} to ${most}`);
}

function oneOf<T extends string>(flag: string, text: string, allowed: readonly T[]): T {
  const found = allowed.find((value) => value === text);
  if (found === undefined) throw wrong(flag, text, `one of ${allowed.join(", ")}`);
  return found;
}

function modelFile(text: string): string {
  const path = resolve(text.replace(/^~(?=\/)/, homedir()));
  if (!path.endsWith(".gguf")) throw wrong("--model", text, "a GGUF file (its name ends in .gguf)");
  const stat = statSync(path, { throwIfNoEntry: false });
  if (!stat) {
    throw new AppError("invalid_value", `--model: there is no file ${path}. Check the path.`);
  }
  if (!stat.isFile()) {
    throw new AppError("invalid_value", `--model: ${path} is not a file. Give a GGUF file.`);
  }
  try {
    accessSync(path, constants.R_OK);
  } catch (error) {
    const message = `--model: ${path} cannot be read: ${(error as Error).message}.`;
    throw new AppError("invalid_value", message);
  }
  return path;
}

function wrong(flag: string, text: string, expected: string): AppError {
  return new AppError("invalid_value", `${flag} "${text}": give ${expected}.`);
}
