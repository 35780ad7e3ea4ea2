import { z } from "zod";
import { identifier } from "../api/job-spec.ts";
import { putProjectRequest } from "../api/projects.ts";
import { putQueueRequest } from "../api/queues.ts";
import { drainWorkerRequest } from "../api/workers.ts";
import { PROJECT_NAME } from "../roles.ts";
import { AGE, COMMON_STATUS, type ResourceKind, STATUS_FIELD } from "./resource-kind.ts";

const { text, time, whole, settings } = STATUS_FIELD;

const queueSpec = putQueueRequest.extend({
  name: identifier.optional().describe("The queue's name; absent: the object's."),
});

const projectSpec = putProjectRequest.extend({
  name: z
    .string()
    .regex(PROJECT_NAME)
    .optional()
    .describe("The project's name; absent: the object's."),
});

const workerSpec = z.strictObject({
  name: z
    .string()
    .min(1)
    .max(63)
    .optional()
    .describe("The node's id in the cluster; absent: the object's name."),
  drain: drainWorkerRequest
    .optional()
    .describe("The node's tasks move, and it takes no work until this is removed."),
});

const clusterSpec = z.strictObject({
  masters: z
    .int()
    .min(1)
    .max(5)
    .optional()
    .describe("1, 3 or 5. Members join and leave the group before and after their pods."),
});

export type QueueSpec = z.input<typeof queueSpec>;
export type ProjectSpec = z.input<typeof projectSpec>;
export type WorkerSpec = z.input<typeof workerSpec>;
export type HeddleClusterSpec = z.input<typeof clusterSpec>;

/** What the status of all these kinds has. */
const SETTINGS_STATUS = { ...COMMON_STATUS, settings } as const;

export const QUEUE: ResourceKind = {
  kind: "Queue",
  plural: "queues",
  shortNames: ["hq"],
  description: "A queue of the Heddle cluster's jobs; it stays when the object is deleted.",
  spec: queueSpec,
  fixed: ["name"],
  rules: [],
  status: { ...SETTINGS_STATUS, length: whole, maxLength: whole, strategy: text },
  columns: [
    ["Phase", "string", ".status.phase"],
    ["Strategy", "string", ".status.strategy"],
    ["Jobs", "integer", ".status.length"],
    ["Max", "integer", ".status.maxLength"],
    ["Reason", "string", ".status.reason"],
    AGE,
  ],
};

export const PROJECT: ResourceKind = {
  kind: "Project",
  plural: "projects",
  shortNames: ["hp"],
  description:
    "A project of the Heddle cluster with its share and quota; it stays when the object is deleted.",
  spec: projectSpec,
  fixed: ["name"],
  rules: [],
  status: {
    ...SETTINGS_STATUS,
    gpus: { type: "number", description: "Held by its jobs now." },
    gpuHours: { type: "string", description: "Of the quota's window." },
    windowStart: time,
    storageBytes: { type: "integer", description: "Of all that counts for the quota." },
    weight: text,
  },
  columns: [
    ["Phase", "string", ".status.phase"],
    ["Weight", "string", ".status.weight"],
    ["GPUs", "number", ".status.gpus"],
    ["GPU-Hours", "string", ".status.gpuHours"],
    ["Quota", "number", ".spec.quota.gpu_count"],
    ["Reason", "string", ".status.reason"],
    AGE,
  ],
};

export const WORKER: ResourceKind = {
  kind: "Worker",
  plural: "workers",
  shortNames: ["hw"],
  description: "A node of the Heddle cluster; the operator makes one for each.",
  spec: workerSpec,
  fixed: ["name"],
  rules: [],
  status: {
    ...SETTINGS_STATUS,
    role: { type: "string", description: "worker or parameter-server" },
    version: text,
    address: text,
    gpus: { type: "number" },
    gpusHeld: { type: "number" },
    gpuType: text,
    tasks: whole,
    replicas: whole,
    drainBy: time,
  },
  columns: [
    ["Role", "string", ".status.role"],
    ["Phase", "string", ".status.phase"],
    ["GPUs", "number", ".status.gpus"],
    ["Held", "number", ".status.gpusHeld"],
    ["Tasks", "integer", ".status.tasks"],
    ["Type", "string", ".status.gpuType", 1],
    ["Version", "string", ".status.version", 1],
    ["Reason", "string", ".status.reason"],
    AGE,
  ],
};

/** The numbers of masters that a cluster may have in Kubernetes. */
export const GROUP_SIZES = [1, 3, 5] as const;

export const HEDDLE_CLUSTER: ResourceKind = {
  kind: "HeddleCluster",
  plural: "heddleclusters",
  shortNames: ["hc"],
  description: "The Heddle cluster of the release; the operator makes it.",
  spec: clusterSpec,
  fixed: [],
  rules: [
    {
      rule: `!has(self.masters) || self.masters in [${GROUP_SIZES.join(", ")}]`,
      message: "masters is 1, 3 or 5",
    },
  ],
  status: {
    ...SETTINGS_STATUS,
    masters: { type: "integer", description: "Members of the group." },
    reachable: whole,
    leader: text,
    version: text,
    workers: whole,
    gpus: whole,
    models: whole,
  },
  columns: [
    ["Phase", "string", ".status.phase"],
    ["Masters", "integer", ".status.masters"],
    ["Leader", "string", ".status.leader"],
    ["Workers", "integer", ".status.workers"],
    ["GPUs", "integer", ".status.gpus"],
    ["Version", "string", ".status.version"],
    ["Reason", "string", ".status.reason"],
    AGE,
  ],
  scale: { specReplicasPath: ".spec.masters", statusReplicasPath: ".status.masters" },
};

/** The kinds of what a cluster keeps beside jobs and models. */
export const SETTINGS_KINDS = [QUEUE, PROJECT, WORKER, HEDDLE_CLUSTER] as const;
