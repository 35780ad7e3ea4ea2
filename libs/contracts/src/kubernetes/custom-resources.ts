import { z } from "zod";
import { submitJobRequest } from "../api/job-spec.ts";
import { registerModelRequest } from "../api/models.ts";
import { type SchemaNode, structuralSchema } from "./structural-schema.ts";

export const RESOURCE_GROUP = "heddle.dev";
export const RESOURCE_VERSION = "v1alpha1";
/** On every resource that has something in a Heddle cluster; the operator removes it. */
export const FINALIZER = `${RESOURCE_GROUP}/cluster`;

/** The spec of a TrainingJob: a job of the API, and what Kubernetes' users expect of one. */
const trainingJobSpec = submitJobRequest.omit({ id: true }).extend({
  name: z
    .string()
    .min(1)
    .max(128)
    .optional()
    .describe("Unique among the live jobs of its project; absent: NAMESPACE.NAME."),
  suspend: z
    .boolean()
    .optional()
    .describe("Checkpoints the job and releases its resources until it is false again."),
  ttl_seconds_after_finished: z
    .int()
    .min(0)
    .max(31_536_000)
    .optional()
    .describe("The object is deleted so long after the job's end; absent: never."),
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

const conditions = {
  type: "array",
  maxItems: 16,
  "x-kubernetes-list-type": "map",
  "x-kubernetes-list-map-keys": ["type"],
  items: {
    type: "object",
    required: ["type", "status", "lastTransitionTime", "reason", "message"],
    properties: {
      type: { type: "string", maxLength: 316 },
      status: { type: "string", enum: ["True", "False", "Unknown"] },
      observedGeneration: { type: "integer", minimum: 0 },
      lastTransitionTime: { type: "string", format: "date-time" },
      reason: { type: "string", maxLength: 1024 },
      message: { type: "string", maxLength: 32768 },
    },
  },
} as const;

const text = { type: "string" } as const;
const whole = { type: "integer" } as const;
const time = { type: "string", format: "date-time" } as const;

const COMMON_STATUS = {
  observedGeneration: { type: "integer", description: "Of the spec that the status is about." },
  phase: text,
  reason: text,
  message: text,
  conditions,
} as const;

interface Rule {
  readonly rule: string;
  readonly message: string;
}

interface ResourceKind {
  readonly kind: string;
  readonly plural: string;
  readonly shortNames: readonly string[];
  readonly spec: z.ZodType;
  readonly rules: readonly Rule[];
  /** Fields that never change, by their names in the spec. */
  readonly fixed: readonly string[];
  readonly status: SchemaNode;
  readonly columns: readonly (readonly [name: string, type: string, path: string, priority?: 1])[];
  readonly scale?: SchemaNode;
}

const AGE = ["Age", "date", ".metadata.creationTimestamp"] as const;

export const TRAINING_JOB: ResourceKind = {
  kind: "TrainingJob",
  plural: "trainingjobs",
  shortNames: ["tj"],
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
  columns: [
    ["Phase", "string", ".status.phase"],
    ["Progress", "string", ".status.progress"],
    ["GPUs", "number", ".status.gpus"],
    ["ETA", "string", ".status.remaining"],
    ["Reason", "string", ".status.reason"],
    ["Job", "string", ".status.jobId", 1],
    AGE,
  ],
};

export const INFERENCE_MODEL: ResourceKind = {
  kind: "InferenceModel",
  plural: "inferencemodels",
  shortNames: ["im"],
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
    replicas: whole,
    readyReplicas: whole,
    wanted: text,
  },
  columns: [
    ["Model", "string", ".status.modelId"],
    ["Phase", "string", ".status.phase"],
    ["Ready", "integer", ".status.readyReplicas"],
    ["Wanted", "string", ".status.wanted"],
    ["Reason", "string", ".status.reason"],
    AGE,
  ],
  scale: { specReplicasPath: ".spec.replicas", statusReplicasPath: ".status.replicas" },
};

/** The CustomResourceDefinition of a kind. */
export function definitionOf(resource: ResourceKind): SchemaNode {
  const { kind, plural, shortNames, scale } = resource;
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.${RESOURCE_GROUP}` },
    spec: {
      group: RESOURCE_GROUP,
      scope: "Namespaced",
      names: {
        kind,
        listKind: `${kind}List`,
        plural,
        singular: kind.toLowerCase(),
        shortNames,
        categories: ["heddle"],
      },
      versions: [
        {
          name: RESOURCE_VERSION,
          served: true,
          storage: true,
          subresources: { status: {}, ...(scale ? { scale } : {}) },
          additionalPrinterColumns: resource.columns.map(([name, type, jsonPath, priority]) => ({
            name,
            type,
            jsonPath,
            ...(priority ? { priority } : {}),
          })),
          schema: {
            openAPIV3Schema: {
              type: "object",
              required: ["spec"],
              properties: {
                apiVersion: text,
                kind: text,
                metadata: { type: "object" },
                spec: specSchema(resource),
                status: { type: "object", properties: resource.status },
              },
            },
          },
        },
      ],
    },
  };
}

function specSchema({ spec, rules, fixed }: ResourceKind): SchemaNode {
  const schema = structuralSchema(spec);
  const immutable = fixed.map((name) => ({
    rule: `has(self.${name}) == has(oldSelf.${name}) && (!has(self.${name}) || self.${name} == oldSelf.${name})`,
    message: `${name} cannot be changed`,
  }));
  return { ...schema, "x-kubernetes-validations": [...rules, ...immutable] };
}
