import { z } from "zod";
import { identifier, submitJobRequest } from "../api/job-spec.ts";
import { registerModelRequest } from "../api/models.ts";
import { AGE, COMMON_STATUS, type ResourceKind, STATUS_FIELD } from "./resource-kind.ts";

const { text, time, whole, settings } = STATUS_FIELD;

/** The spec of a TrainingJob: a job of the API, and what Kubernetes' users expect of one. */
const trainingJobSpec = submitJobRequest.omit({ id: true }).extend({
  name: z
    .string()
    .min(1)
    .max(128)
    .optional()
    .describe("Unique among the live jobs of its project; absent: NAMESPACE.NAME."),
  project: identifier
    .optional()
    .describe("Whose quota and share it counts for; absent: the first of its namespace's."),
  suspend: z
    .boolean()
    .optional()
    .describe("Checkpoints the job and releases its resources until it is false again."),
  ttl_seconds_after_finished: z
    .int()
    .min(0)
    .max(31_536_000)
    .optional()
    .describe("The object is deleted this long after the job's end; absent: never."),
});

export type TrainingJobSpec = z.input<typeof trainingJobSpec>;

/** The spec of an InferenceModel: a model of the API with a number of replicas for `kubectl scale`. */
const inferenceModelSpec = z.strictObject({
  ...registerModelRequest.shape,
  id: registerModelRequest.shape.id
    .optional()
    .describe("The id for calls; absent: the object's name."),
  replicas: z
    .int()
    .min(0)
    .max(10_000)
    .optional()
    .describe("A fixed number of replicas; with `scaling` it is what the load asks for."),
});

export type InferenceModelSpec = z.input<typeof inferenceModelSpec>;

export const TRAINING_JOB: ResourceKind = {
  kind: "TrainingJob",
  plural: "trainingjobs",
  shortNames: ["tj"],
  description:
    "A job of the Heddle cluster: it is submitted once, and cancelled when the object is deleted.",
  spec: trainingJobSpec,
  fixed: ["name", "project", "queue", "algorithm", "container_image", "tasks", "working_directory"],
  rules: [
    {
      rule: "!has(self.failure_tolerance) || !has(self.tasks) || self.failure_tolerance < self.tasks",
      message: "failure_tolerance must be less than tasks",
    },
    {
      rule: "!has(self.container_options) || has(self.container_image)",
      message: "container_options are of a container, and no container_image is named",
    },
    {
      rule: "!has(self.resources) || !has(self.resources.gpu_memory_gb) || (has(self.resources.gpu_count) && self.resources.gpu_count > 0)",
      message: "gpu_memory_gb needs a gpu_count above 0",
    },
  ],
  status: {
    ...COMMON_STATUS,
    jobId: { type: "string", description: "The job's id in the HTTP API." },
    project: { type: "string", description: "Whose quota and share the job counts for." },
    specDigest: { type: "string", description: "Of the spec that was submitted." },
    suspended: { type: "boolean" },
    progress: { type: "string", description: "As 42%." },
    step: { type: "number" },
    totalSteps: { type: "number" },
    loss: { type: "number" },
    attempt: whole,
    tasks: whole,
    gpus: { type: "number" },
    startTime: time,
    completionTime: time,
    remaining: { type: "string", description: "The time to the expected end, as 5m." },
  },
  selectable: [".spec.project", ".spec.queue"],
  columns: [
    ["Phase", "string", ".status.phase"],
    ["Progress", "string", ".status.progress"],
    ["GPUs", "number", ".status.gpus"],
    ["ETA", "string", ".status.remaining"],
    ["Reason", "string", ".status.reason"],
    ["Project", "string", ".status.project", 1],
    ["Queue", "string", ".spec.queue", 1],
    ["Attempt", "integer", ".status.attempt", 1],
    ["Job", "string", ".status.jobId", 1],
    AGE,
  ],
};

export const INFERENCE_MODEL: ResourceKind = {
  kind: "InferenceModel",
  plural: "inferencemodels",
  shortNames: ["im"],
  description: "A model that the Heddle cluster serves while the object exists.",
  spec: inferenceModelSpec,
  fixed: ["id"],
  rules: [
    {
      rule: "!has(self.scaling) || !has(self.scaling.min) || !has(self.scaling.max) || self.scaling.min <= self.scaling.max",
      message: "scaling.max is less than scaling.min",
    },
    {
      rule: "!has(self.scaling) || !has(self.scaling.idle_unload_s) || !has(self.scaling.min) || self.scaling.min == 0",
      message: "scaling.idle_unload_s needs a scaling.min of 0",
    },
    {
      rule: "!has(self.source) || !has(self.weights)",
      message: "give either source or weights",
    },
  ],
  status: {
    ...COMMON_STATUS,
    modelId: { type: "string", description: "The id for calls." },
    selector: {
      type: "string",
      description: "HorizontalPodAutoscalers ask for one; no Pod has the label.",
    },
    replicas: whole,
    readyReplicas: whole,
    wanted: text,
    settings,
  },
  columns: [
    ["Model", "string", ".status.modelId"],
    ["Phase", "string", ".status.phase"],
    ["Ready", "integer", ".status.readyReplicas"],
    ["Wanted", "string", ".status.wanted"],
    ["Reason", "string", ".status.reason"],
    AGE,
  ],
  scale: {
    specReplicasPath: ".spec.replicas",
    statusReplicasPath: ".status.replicas",
    labelSelectorPath: ".status.selector",
  },
};
