// holds: kube-definitions

import { readFileSync } from "node:fs";
import { structuralSchema } from "@heddle/contracts/kubernetes/structural-schema";
import { expect, it } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { definitionTexts } from "./definitions.ts";

/** Kept by kubectl in an annotation, which has a limit of 256 KiB with all others. */
const MAX_BYTES = 64 * 1024;

it.each([...definitionTexts()].map(([path, text]) => ({ path, text })))(
  "definitions: $path is current (npm run crds), and small enough for kubectl apply",
  ({ path, text }) => {
    expect(readFileSync(path, "utf8")).toBe(text);
    expect(Buffer.byteLength(text)).toBeLessThan(MAX_BYTES);
  },
);

interface Definition {
  readonly spec: {
    readonly versions: readonly {
      readonly schema: { readonly openAPIV3Schema: { readonly properties: { spec: Spec } } };
    }[];
  };
}

interface Spec {
  readonly properties: Readonly<Record<string, { readonly type?: string }>>;
  readonly "x-kubernetes-validations"?: readonly { readonly rule: string }[];
}

it("definitions: a rule names only fields with a type, as Kubernetes asks", () => {
  const specs = [...definitionTexts().values()].flatMap((text) =>
    (parse(text) as Definition).spec.versions.map(
      ({ schema }) => schema.openAPIV3Schema.properties.spec,
    ),
  );
  const named = specs.flatMap(({ properties, "x-kubernetes-validations": rules = [] }) =>
    rules.flatMap(({ rule }) =>
      [...rule.matchAll(/\bself\.(\w+)/g)].map(([, name = ""]) => [name, properties[name]?.type]),
    ),
  );
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter(([, type]) => type === undefined)).toEqual([]);
});

it("definitions: of a named schema too, fields with defaults may be absent", () => {
  const drain = z.strictObject({ seconds: z.int().default(600) }).meta({ id: "DrainForTest" });
  const { properties } = structuralSchema(z.strictObject({ drain: drain.optional() }));
  expect(properties).toEqual({
    drain: { type: "object", properties: { seconds: { type: "integer" } } },
  });
});

it("definitions: a structural schema has what Kubernetes understands", () => {
  const schema = z.strictObject({
    name: z.string().min(1).regex(/^a/),
    count: z.int().default(3).describe("How many."),
    share: z.number().positive().optional(),
    unlike: z
      .string()
      .regex(/^(?!b)/)
      .optional(),
    either: z.union([z.string(), z.int()]).optional(),
    texts: z.union([z.string().regex(/^a/), z.string().regex(/^b/)]).optional(),
    labels: z.record(z.string(), z.string()).optional(),
    free: z.record(z.string(), z.any()).optional(),
    kind: z.literal("one").optional(),
  });
  expect(structuralSchema(schema)).toEqual({
    type: "object",
    required: ["name"],
    properties: {
      name: { type: "string", minLength: 1, pattern: "^a" },
      count: { type: "integer", description: "How many." },
      share: { type: "number", minimum: 0, exclusiveMinimum: true },
      unlike: { type: "string" },
      either: { "x-kubernetes-preserve-unknown-fields": true },
      texts: { type: "string" },
      labels: { type: "object", additionalProperties: { type: "string" } },
      free: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      kind: { type: "string", enum: ["one"] },
    },
  });
});
