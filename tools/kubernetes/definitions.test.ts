// holds: kube-definitions

import { readFileSync } from "node:fs";
import { structuralSchema } from "@heddle/contracts/kubernetes/structural-schema";
import { expect, it } from "vitest";
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
      labels: { type: "object", additionalProperties: { type: "string" } },
      free: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      kind: { type: "string", enum: ["one"] },
    },
  });
});
