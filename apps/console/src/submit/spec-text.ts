import { isJsonObject } from "@heddle/base/json-object";
import type { JobSpec } from "@heddle/contracts/api/job-spec";
import { parse, stringify } from "yaml";

type ParsedSpec = { readonly spec: JobSpec } | { readonly fault: string };

/** The spec of a text in YAML, which JSON is too. The cluster checks its fields. */
export function parseSpec(text: string): ParsedSpec {
  let spec: unknown;
  try {
    spec = parse(text);
  } catch (error) {
    return { fault: (error as Error).message };
  }
  if (!isJsonObject(spec)) return { fault: "" };
  return { spec: spec as JobSpec };
}

export function specText(spec: JobSpec): string {
  return stringify(spec, { lineWidth: 0 });
}
