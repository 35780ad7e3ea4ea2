import type { z } from "zod";
import { type SchemaNode, structuralSchema } from "./structural-schema.ts";

export const RESOURCE_GROUP = "heddle.dev";
export const RESOURCE_VERSION = "v1alpha1";
/** On every resource that has something in a Heddle cluster; the operator removes it. */
export const FINALIZER = `${RESOURCE_GROUP}/cluster`;
/** The cluster that an object is of, where several have operators in one namespace. */
export const CLUSTER_LABEL = `${RESOURCE_GROUP}/cluster`;

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

const settings = {
  type: "string",
  description: "What spec and cluster had in common last: what differs from it has changed.",
} as const;

/** Schemas of fields of a status. */
export const STATUS_FIELD = { text, whole, time, settings };

export const COMMON_STATUS = {
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

/** What a CustomResourceDefinition is made of. */
export interface ResourceKind {
  readonly kind: string;
  readonly plural: string;
  readonly shortNames: readonly string[];
  /** For `kubectl explain`. */
  readonly description: string;
  readonly spec: z.ZodType;
  readonly rules: readonly Rule[];
  /** Fields that never change, by their names in the spec. */
  readonly fixed: readonly string[];
  readonly status: SchemaNode;
  /** Paths beside the phase that `kubectl get --field-selector` takes. */
  readonly selectable?: readonly string[];
  readonly columns: readonly (readonly [name: string, type: string, path: string, priority?: 1])[];
  readonly scale?: SchemaNode;
}

export const AGE = ["Age", "date", ".metadata.creationTimestamp"] as const;

/** The CustomResourceDefinition of a kind. */
export function definitionOf(resource: ResourceKind): SchemaNode {
  const { kind, plural, shortNames, description, scale, selectable = [] } = resource;
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
          selectableFields: [".status.phase", ...selectable].map((jsonPath) => ({ jsonPath })),
          additionalPrinterColumns: resource.columns.map(([name, type, jsonPath, priority]) => ({
            name,
            type,
            jsonPath,
            ...(priority ? { priority } : {}),
          })),
          schema: {
            openAPIV3Schema: {
              type: "object",
              description,
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
