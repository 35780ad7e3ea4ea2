import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import type { Job } from "@heddle/contracts/api/job-replies";
import type { V1Pod, V1PodSpec, V1ResourceRequirements } from "@kubernetes/client-node";

const BYTES_PER_GB = 1e9;
/** The longest job name in a Pod's annotation. */
const MAX_NAME = 128;

/** What the file of --pending-pods holds. */
export interface PendingPodSettings {
  /** How long a job waits before Pods are made for it. */
  readonly after_seconds: number;
  /** The resource of GPUs; empty where Pods cannot ask for any. */
  readonly gpu_resource: string;
  /** The Pods, but for their names, labels and requests. */
  readonly pod: V1Pod & { readonly spec: V1PodSpec };
}

/**
 * Pods go with the operator's own, where the environment names it. Throws an AppError `invalid_value`.
 */
export function readPendingPodSettings(
  file: string,
  { POD_NAME: name, POD_UID: uid }: NodeJS.ProcessEnv,
): PendingPodSettings {
  const wanted = "a JSON object with after_seconds, gpu_resource and pod";
  const text = readFlagFile("--pending-pods", file, wanted);
  try {
    const settings = JSON.parse(text) as Partial<PendingPodSettings> | null;
    const { after_seconds: after, gpu_resource: resource, pod } = settings ?? {};
    const isTime = typeof after === "number" && after >= 0;
    if (isTime && typeof resource === "string" && pod?.spec?.containers.length === 1) {
      const owners = name && uid ? [{ apiVersion: "v1", kind: "Pod", name, uid }] : [];
      const metadata = { ...pod.metadata, ownerReferences: owners };
      return { ...(settings as PendingPodSettings), pod: { ...pod, metadata, spec: pod.spec } };
    }
  } catch {}
  throw new AppError("invalid_value", `--pending-pods ${file} is not ${wanted} of one container.`);
}

/** A Pod for each task, which asks for what the task does. */
export function podsOfGang(
  job: Pick<Job, "id" | "name" | "tasks" | "gpu_count" | "spec">,
  { pod, gpu_resource }: PendingPodSettings,
  labels: Readonly<Record<string, string>>,
): V1Pod[] {
  const { id, name, tasks, gpu_count } = job;
  const resources = gangResources({ ...job.spec.resources, tasks, gpu_count }, gpu_resource);
  const [container] = pod.spec.containers;
  return Array.from({ length: tasks }, (_, rank) => ({
    ...pod,
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      ...pod.metadata,
      name: `heddle-pending-${id.replace(/^job_/, "").toLowerCase()}-${rank}`,
      labels: { ...pod.metadata?.labels, ...labels, "heddle.dev/job": id },
      annotations: { ...pod.metadata?.annotations, "heddle.dev/job-name": name.slice(0, MAX_NAME) },
    },
    spec: {
      ...pod.spec,
      containers: [{ ...container!, resources }],
    },
  }));
}

/** What all tasks of a job need. */
interface GangNeeds {
  readonly tasks: number;
  readonly gpu_count?: number | undefined;
  readonly cpu_cores?: number | undefined;
  readonly memory_gb?: number | undefined;
}

/** What each task requests. Without limits of what the waiting program itself needs. */
export function gangResources(
  { tasks, gpu_count = 0, cpu_cores: cores = 1, memory_gb: memory = 1 }: GangNeeds,
  gpuResource: string,
): V1ResourceRequirements {
  const gpus = Math.ceil(gpu_count / tasks);
  const limits = gpus > 0 ? { [gpuResource]: String(gpus) } : {};
  const requests = {
    cpu: `${Math.max(1, Math.ceil((1_000 * cores) / tasks))}m`,
    memory: String(Math.max(1, Math.ceil((BYTES_PER_GB * memory) / tasks))),
    ...limits,
  };
  return { requests, limits };
}
