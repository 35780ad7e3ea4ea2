import type { JobSpec } from "@heddle/contracts/api/job-spec";
import { parse, stringify } from "yaml";

/** A job that runs anywhere. */
export const EXAMPLE_SPEC: JobSpec = {
  name: "hello",
  command: 'for i in $(seq 10); do echo "hello $i"; sleep 1; done\n',
  resources: { cpu_cores: 1, memory_gb: 1 },
};

type ParsedSpec = { readonly spec: JobSpec } | { readonly fault: string };

/** The spec of a text in YAML, which JSON is too. The cluster checks its fields. */
export function parseSpec(text: string): ParsedSpec {
  let spec: unknown;
  try {
    spec = parse(text);
  } catch (error) {
    return { fault: (error as Error).message };
  }
  if (typeof spec !== "object" || spec === null || Array.isArray(spec)) return { fault: "" };
  return { spec: spec as JobSpec };
}

export function specText(spec: JobSpec): string {
  return stringify(spec, { lineWidth: 0 });
}
