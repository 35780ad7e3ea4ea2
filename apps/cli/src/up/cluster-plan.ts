import { existsSync } from "node:fs";
import { totalmem } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { AppError } from "@heddle/base/errors";
import type { ProcessKind } from "@heddle/base/process/young-generation";
import type { ClusterSecrets, DataDirectory, TlsFiles } from "./data-directory.ts";
import { nodeFlags } from "./node-flags.ts";
import type { ProcessLogLevel, Profile, UpOptions } from "./options.ts";
import { LOOPBACK, type MasterPorts } from "./ports.ts";
import type { ProcessSpec } from "./supervised-process.ts";

/** The program of each kind of process. */
export type Programs = Readonly<Record<ProcessKind, string>>;

/** Shorter than the supervisor's grace, so that processes exit by themselves. */
const DRAIN_MS = 3_000;
const APPS = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");

/** The compiled apps of this workspace. */
export const WORKSPACE_PROGRAMS: Programs = {
  master: join(APPS, "master/dist/main.js"),
  worker: join(APPS, "worker/dist/main.js"),
  "parameter-server": join(APPS, "parameter-server/dist/main.js"),
};

/** Prints how a worker of this user would isolate its tasks. */
export const ISOLATION_PROGRAM = join(APPS, "worker/dist/tasks/isolation/isolation-level-main.js");

/** The configuration of a cluster's processes besides the user's options. */
export interface ClusterLayout {
  readonly options: UpOptions;
  readonly profile: Profile | undefined;
  readonly data: DataDirectory;
  readonly ports: readonly MasterPorts[];
  readonly secrets: ClusterSecrets;
  readonly tls: TlsFiles | undefined;
  readonly programs: Programs;
}

/** Every process of the cluster with its command line. */
export function planCluster(layout: ClusterLayout): ProcessSpec[] {
  const { options, ports } = layout;
  return [
    ...ports.map((_, index) => masterSpec(layout, index)),
    ...nodeSpecs(layout, "worker", options.workers),
    ...nodeSpecs(layout, "parameter-server", options.parameterServers),
  ];
}

function masterSpec(layout: ClusterLayout, index: number): ProcessSpec {
  const { data, ports, secrets, tls } = layout;
  const name = `master-${index + 1}`;
  const own = ports[index] as MasterPorts;
  const peers = ports.map(({ grpc }, i) => `master-${i + 1}=${LOOPBACK}:${grpc}`).join(",");
  return spec(layout, "master", name, [
    "--data",
    data.subdirectory(name),
    "--name",
    name,
    "--http-host",
    LOOPBACK,
    "--http-port",
    String(own.http),
    "--grpc-host",
    LOOPBACK,
    "--grpc-port",
    String(own.grpc),
    "--cluster-token-file",
    secrets.clusterTokenFile,
    "--bootstrap-key-file",
    secrets.bootstrapKeyFile,
    "--join-token-file",
    data.joinTokenFile(name),
    ...(tls ? ["--tls", "--ca-file", tls.authorityFile, ...enrollKeyFlag(tls)] : []),
    ...secretsKeyFlag(layout.options.secretsKeyFile),
    ...(layout.profile ? ["--profile", layout.profile] : modelFileFlag(layout.options)),
    ...(ports.length > 1 ? ["--peers", peers] : []),
    ...pluginFlag(layout.options),
  ]);
}

function pluginFlag({ plugins }: UpOptions): string[] {
  return plugins.length > 0 ? ["--plugins", plugins.join(",")] : [];
}

export function secretsKeyFlag(file: string | undefined): string[] {
  return file === undefined ? [] : ["--secrets-key-file", file];
}

function enrollKeyFlag({ enrollKeyFile }: TlsFiles): string[] {
  return ["--enroll-key-file", enrollKeyFile];
}

function modelFileFlag({ modelFile }: UpOptions): string[] {
  return modelFile === undefined ? [] : ["--model-file", modelFile];
}

function nodeSpecs(
  layout: ClusterLayout,
  kind: "worker" | "parameter-server",
  count: number,
): ProcessSpec[] {
  const { data, ports, secrets, tls } = layout;
  const masters = ports.map(({ grpc }) => `${LOOPBACK}:${grpc}`).join(",");
  return Array.from({ length: count }, (_, index) => {
    const name = `${kind}-${index + 1}`;
    const proof = tls
      ? ["--tls", ...enrollKeyFlag(tls)]
      : ["--cluster-token-file", secrets.clusterTokenFile];
    return spec(layout, kind, name, [
      "--data",
      data.subdirectory(name),
      "--name",
      name,
      "--grpc-host",
      LOOPBACK,
      "--grpc-port",
      "0",
      "--masters",
      masters,
      ...proof,
      ...(kind === "worker" ? workerFlags(layout) : []),
    ]);
  });
}

/**
 * Workers of one machine share their checkpoints, so that a job can continue on another of them.
 */
function workerFlags({ data, options }: ClusterLayout): string[] {
  return [
    "--models-cache",
    options.modelsCache,
    "--checkpoints",
    data.subdirectory("checkpoints"),
    "--task-hidden",
    data.path,
    ...options.workerFlags,
    ...pluginFlag(options),
  ];
}

function spec(
  layout: ClusterLayout,
  kind: ProcessKind,
  name: string,
  flags: readonly string[],
): ProcessSpec {
  return {
    name,
    kind,
    command: [process.execPath, ...nodeFlags(kind, totalmem()), layout.programs[kind], ...flags],
    env: childEnvironment(kind, layout.options.logLevel),
  };
}

/** "ready" is an info line, so a process logs at least that level even if less is shown. */
function childEnvironment(kind: ProcessKind, shown: ProcessLogLevel): NodeJS.ProcessEnv {
  const { HEDDLE_SECRETS_KEY: secretsKey, ...env } = process.env;
  return {
    ...env,
    // Other processes do not get what they do not need.
    ...(kind === "master" && secretsKey !== undefined ? { HEDDLE_SECRETS_KEY: secretsKey } : {}),
    HEDDLE_LOG_LEVEL: shown === "debug" ? "debug" : "info",
    HEDDLE_DRAIN_MS: process.env["HEDDLE_DRAIN_MS"] ?? String(DRAIN_MS),
  };
}

/** Throws `unavailable` if a required program is not built. */
export function checkPrograms(options: UpOptions, programs: Programs): void {
  const wanted: readonly [ProcessKind, number][] = [
    ["master", options.masters],
    ["worker", options.workers],
    ["parameter-server", options.parameterServers],
  ];
  for (const [kind, count] of wanted) {
    if (count === 0 || existsSync(programs[kind])) continue;
    const message = `The ${kind} is not built (${programs[kind]} is missing). Build it: npm run build`;
    throw new AppError("unavailable", message);
  }
}
