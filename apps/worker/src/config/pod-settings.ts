import { AppError } from "@heddle/base/errors";
import type { FlagHelp } from "@heddle/node-agent/node-flags";

/** The flags of a worker that runs in Kubernetes, for tasks and models as Pods. */
export const POD_FLAGS = {
  "pod-gpus": ["RESOURCE[=COUNT]", "resource of the device plugin for Pods, as nvidia.com/gpu"],
  "pod-gpu-claims": [
    "TEMPLATE=COUNT",
    "ResourceClaimTemplate of one GPU (DRA), and how many of its node the worker gives to Pods",
  ],
  "pod-service": ["NAME", "headless Service over the Pods of tasks (default: heddle-tasks)"],
  "pod-template": ["FILE", "JSON with parts of a Pod that all Pods of tasks and models get"],
  "pod-profiles": [
    "FILE",
    "JSON with further parts by name, for container_options.profile of jobs",
  ],
  "pod-queues": ["FILE", "JSON with further parts by the name of a job's queue"],
  "pod-models": ["FILE", "JSON with further parts for the Pods of models"],
  "cluster-domain": ["DOMAIN", "DNS domain of the Kubernetes cluster (default: cluster.local)"],
} as const satisfies Record<string, FlagHelp>;

const RESOURCE = /^([a-z0-9.-]{1,253}\/[\w.-]{1,63})(?:=(\d{1,4}))?$/;
const CLAIMS = /^([a-z0-9][-.a-z0-9]{0,252})=([1-9]\d{0,3})$/;
const NAME = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const DOMAIN = /^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$/;

/** Where the API server is, and the folder with the token, authority and namespace of an account. */
export interface KubernetesAccess {
  readonly url: string;
  readonly accountFolder: string;
}

/** What gives Pods their GPUs. */
export type PodGpus =
  | {
      readonly by: "plugin";
      /** The resource nvidia.com/gpu. */
      readonly resource: string;
      /** Absent: as many as the node has. */
      readonly count?: number | undefined;
    }
  | {
      readonly by: "claim";
      /** A ResourceClaimTemplate of one device. */
      readonly template: string;
      readonly count: number;
    };

/** A worker's settings for tasks that run as Pods. */
export interface PodSettings {
  /** The worker's own pod. */
  readonly podName: string;
  /** Undefined where Pods get none. */
  readonly gpus: PodGpus | undefined;
  /** A headless Service over the Pods, by which the tasks of a gang find each other. */
  readonly service: string;
  /** The cluster's DNS domain. */
  readonly clusterDomain: string;
  /** A file with parts of a Pod that all of them get; empty for none. */
  readonly templateFile: string;
  /** A file with further parts by the name of a profile, which jobs may choose; empty for none. */
  readonly profilesFile: string;
  /** A file with further parts by the name of a queue; empty for none. */
  readonly queuesFile: string;
  /** A file with further parts of models' Pods; empty for none. */
  readonly modelsFile: string;
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
  const given = Object.keys(POD_FLAGS).find((flag) => flags[flag]);
  if (executor !== "pod") {
    if (given === undefined) return undefined;
    throw new AppError("invalid_value", `--${given} is of tasks as Pods: add --executor pod`);
  }
  const podName = environment["POD_NAME"] ?? "";
  if (podName === "") {
    const message = "--executor pod needs the pod's name in POD_NAME: set it by the downward API";
    throw new AppError("invalid_value", message);
  }
  const gpus = podGpus(flags["pod-gpus"], flags["pod-gpu-claims"], takes);
  const { "pod-service": service = "heddle-tasks", "pod-queues": queuesFile = "" } = flags;
  const { "pod-template": templateFile = "", "pod-profiles": profilesFile = "" } = flags;
  const { "pod-models": modelsFile = "" } = flags;
  if (!NAME.test(service)) throw takes("pod-service", "the name of a Service");
  const clusterDomain = flags["cluster-domain"] ?? "cluster.local";
  if (!DOMAIN.test(clusterDomain)) throw takes("cluster-domain", "a DNS domain");
  const files = { templateFile, profilesFile, queuesFile, modelsFile };
  return { podName, gpus, service, clusterDomain, ...files };
}

function podGpus(
  plugin: string | undefined,
  claims: string | undefined,
  takes: (flag: "pod-gpus" | "pod-gpu-claims", what: string) => AppError,
): PodGpus | undefined {
  if (plugin && claims) {
    const message = "--pod-gpus and --pod-gpu-claims would give the same GPUs twice: leave one out";
    throw new AppError("invalid_value", message);
  }
  if (plugin) {
    const [, resource, count] = RESOURCE.exec(plugin) ?? [];
    if (!resource) throw takes("pod-gpus", "RESOURCE=COUNT, as nvidia.com/gpu=8");
    return { by: "plugin", resource, ...(count && { count: Number(count) }) };
  }
  if (!claims) return undefined;
  const [, template, count] = CLAIMS.exec(claims) ?? [];
  if (!template) throw takes("pod-gpu-claims", "TEMPLATE=COUNT, as one-gpu=8");
  return { by: "claim", template, count: Number(count) };
}
