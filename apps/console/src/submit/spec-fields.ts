import type { JobExplanation } from "@heddle/contracts/api/job-replies";
import type { JobSpec } from "@heddle/contracts/api/job-spec";

/** A job that runs anywhere. */
export const EXAMPLE_SPEC: JobSpec = {
  name: "hello",
  command: 'for i in $(seq 10); do echo "hello $i"; sleep 1; done\n',
  resources: { cpu_cores: 1, memory_gb: 1 },
};

/** Sets a field by its path, or removes it where there is no value; what becomes empty goes too. */
export function withField(spec: JobSpec, path: readonly string[], value: unknown): JobSpec {
  return setAt({ ...spec }, path, value) as JobSpec;
}

type Fields = Record<string, unknown>;

function setAt(fields: Fields, [name = "", ...rest]: readonly string[], value: unknown): Fields {
  const { [name]: old, ...others } = fields;
  const next = rest.length === 0 ? value : setAt(fieldsOf(old), rest, value);
  const isEmpty =
    next === undefined || (rest.length > 0 && Object.keys(next as Fields).length === 0);
  if (isEmpty) return others;
  return { ...fields, [name]: next };
}

/** The value at a path of a spec. */
export function fieldAt(spec: JobSpec, path: readonly string[]): unknown {
  let value: unknown = spec;
  for (const name of path) value = fieldsOf(value)[name];
  return value;
}

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? { ...(value as Fields) } : {};
}

type ProposedChange = JobExplanation["changes"][number];

const OF_THE_JOB = new Set(["tasks", "max_runtime_hours"]);

/** The spec with a change that the cluster proposes; undefined where it is of several fields. */
export function withChange(spec: JobSpec, { field, to }: ProposedChange): JobSpec | undefined {
  if (field === "all_amounts") return undefined;
  if (field === "parameter_servers") return withField(spec, ["config", field], to ?? undefined);
  const path = OF_THE_JOB.has(field) ? [field] : ["resources", field];
  return withField(spec, path, to ?? undefined);
}
