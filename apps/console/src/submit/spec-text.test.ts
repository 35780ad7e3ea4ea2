import { expect, test } from "vitest";
import { EXAMPLE_SPEC, fieldAt, withChange, withField } from "./spec-fields.ts";
import { parseSpec, specText } from "./spec-text.ts";

test("spec: a text in YAML and one in JSON are read, other texts have a fault", () => {
  const spec = { name: "a", command: "true" };
  expect(parseSpec("name: a\ncommand: 'true'\n")).toEqual({ spec });
  expect(parseSpec(JSON.stringify(spec))).toEqual({ spec });
  expect(parseSpec("name: [a")).toMatchObject({ fault: expect.stringContaining("line 1") });
  expect(parseSpec("- a")).toEqual({ fault: "" });
});

test("spec: the example is the same after it was written and read", () => {
  expect(parseSpec(specText(EXAMPLE_SPEC))).toEqual({ spec: EXAMPLE_SPEC });
});

test("spec: a field is set below its parents, and removed with those that are empty", () => {
  const spec = withField({ name: "a" }, ["resources", "gpu_count"], 2);
  expect(spec).toEqual({ name: "a", resources: { gpu_count: 2 } });
  expect(fieldAt(spec, ["resources", "gpu_count"])).toBe(2);
  expect(withField(spec, ["resources", "gpu_count"], undefined)).toEqual({ name: "a" });
});

test("spec: a proposed change is applied where the spec has the field", () => {
  const spec = { name: "a", tasks: 4, resources: { gpu_count: 8, gpu_type: "H100" } };
  const change = { from: 8, cost: 0.5, outcome: "would_start" } as const;
  expect(withChange(spec, { ...change, field: "gpu_count", to: 4 })?.resources).toEqual({
    gpu_count: 4,
    gpu_type: "H100",
  });
  expect(withChange(spec, { ...change, field: "gpu_type", to: null })?.resources).toEqual({
    gpu_count: 8,
  });
  expect(withChange(spec, { ...change, field: "tasks", to: 2 })?.tasks).toBe(2);
  expect(withChange(spec, { ...change, field: "all_amounts", to: "50%" })).toBe(undefined);
});
