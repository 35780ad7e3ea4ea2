import { AppError } from "@heddle/base/errors";
import type { FlagHelp } from "@heddle/node-agent/node-flags";

/** The flags of a worker that runs in Kubernetes, for tasks as Pods. */
export const POD_FLAGS = {
  executor: [
    "KIND",
    "process, pod or slurm: what tasks run as; pod needs Kubernetes (default: process)",
  ],
  "pod-gpus": ["RESOURCE[=COUNT]", "resource of the device plugin for Pods, as nvidia.com/gpu"],
  "pod-service": ["NAME", "headless Service over the Pods of tasks (default: heddle-tasks)"],
  "pod-template": ["FILE", "JSON with parts of a Pod that all Pods of tasks get"],
  "pod-profiles": [
    "FILE",
    "JSON with further parts by name, for container_options.profile of jobs",
  ],
  "cluster-domain": ["DOMAIN", "DNS domain of the Kubernetes cluster (default: cluster.local)"],
} as const satisfies Record<string, FlagHelp>;

const RESOURCE = /^([a-z0-9.-]{1,253}\/[\w.-]{1,63})(?:=(\d{1,4}))?$/;
const NAME = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const DOMAIN = /^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$/;

/** Where the API server is, and the folder with the token, authority and namespace of an account. */
export interface KubernetesAccess {
  readonly url: string;
  readonly accountFolder: string;
}

/** A worker's settings for tasks that run as Pods. */
export interface PodSettings {
  /** The worker's own pod. */
  readonly podName: string;
  /** A device plugin's resource, as nvidia.com/gpu; empty for none. */
  readonly gpuResource: string;
  /** Absent: as many as the node has. */
  readonly gpuCount?: number | undefined;
  /** A headless Service over the Pods, by which the tasks of a gang find each other. */
  readonly service: string;
  /** The cluster's DNS domain. */
  readonly clusterDomain: string;
  /** A file with parts of a Pod that all of them get; empty for none. */
  readonly templateFile: string;
  /** A file with further parts by the name of a profile, which jobs may choose; empty for none. */
  readonly profilesFile: string;
  /** Absent: as Kubernetes gives it to pods. */
  readonly access?: KubernetesAccess | undefined;
}

/** Undefined where tasks are processes. Throws an AppError `invalid_value` that names the flag. */
export function readPodSettings(
  flags: Readonly<Record<string, string | undefined>>,
  environment: NodeJS.ProcessEnv = process.env,
): PodSettings | undefined {
  const { executor = "process" } = flags;
  const takes = (flag: keyof typeof POD_FLAGS, what: string) =>
    new AppError("invalid_value", `--${flag} takes ${what}, not ${flags[flag]}`);
  const isKnown = ["process", "pod", "slurm"].includes(executor);
  if (!isKnown) throw takes("executor", "process, pod or slurm");
  const given = Object.keys(POD_FLAGS).find((flag) => flag !== "executor" && flags[flag]);
  if (executor !== "pod") {
    if (given === undefined) return undefined;
    throw new AppError("invalid_value", `--${given} is of tasks as Pods: add --executor pod`);
  }
  const podName = environment["POD_NAME"] ?? "";
  if (podName === "") {
    const message = "--executor pod needs the pod's name in POD_NAME: set it by the downward API";
    throw new AppError("invalid_value", message);
  }
  const gpus = flags["pod-gpus"];
  const [, gpuResource = "", count] = RESOURCE.exec(gpus ?? "") ?? [];
  if (gpus && gpuResource === "") throw takes("pod-gpus", "RESOURCE=COUNT, as nvidia.com/gpu=8");
  const { "pod-service": service = "heddle-tasks" } = flags;
  const { "pod-template": templateFile = "", "pod-profiles": profilesFile = "" } = flags;
  if (!NAME.test(service)) throw takes("pod-service", "the name of a Service");
  const clusterDomain = flags["cluster-domain"] ?? "cluster.local";
  if (!DOMAIN.test(clusterDomain)) throw takes("cluster-domain", "a DNS domain");
  const gpuCount = count === undefined ? undefined : Number(count);
  return { podName, gpuResource, gpuCount, service, clusterDomain, templateFile, profilesFile };
}
