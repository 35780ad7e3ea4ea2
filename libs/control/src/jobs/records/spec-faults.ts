import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { splitFault } from "./task-request.ts";

/** One fault of a spec whose fields are each valid. */
export interface SpecFault {
  /** The field as a path, `resources.gpu_count`. */
  readonly param: string;
  readonly detail: string;
  /** The fields that it depends on, each as `tasks` or `resources.gpu_count`. */
  readonly reads: readonly string[];
}

/** All inconsistencies between the fields of a job's spec; empty for a valid one. */
export function specFaults(spec: SubmitJob): readonly SpecFault[] {
  return [
    ...programFaults(spec),
    ...variableFaults(spec),
    ...gpuFaults(spec),
    ...gangFaults(spec),
    ...whenFaults(spec),
  ];
}

function variableFaults(spec: SubmitJob): SpecFault[] {
  const { environment_variables: plain, secret_variables: secret = {} } = spec;
  return Object.keys(secret)
    .filter((name) => Object.hasOwn(plain, name))
    .map((name) => ({
      param: `secret_variables.${name}`,
      detail: "`environment_variables` has a value for it: leave out one of them",
      reads: ["environment_variables", "secret_variables"],
    }));
}

function programFaults(spec: SubmitJob): SpecFault[] {
  const faults: SpecFault[] = [];
  const { algorithm, command, container_image: image, config } = spec;
  if (algorithm === undefined && command === undefined && image === undefined) {
    faults.push({
      param: "command",
      detail: "one of `command`, `container_image` or `algorithm` must say what runs",
      reads: ["command", "container_image", "algorithm"],
    });
  }
  if (image === undefined && spec.container_options !== undefined) {
    faults.push({
      param: "container_options",
      detail: "they are options of a container, and no `container_image` is named",
      reads: ["container_options", "container_image"],
    });
  }
  if (algorithm === undefined && Object.keys(config).length > 0) {
    faults.push({
      param: "config",
      detail: "it holds the hyperparameters of an `algorithm`, and none is named",
      reads: ["config", "algorithm"],
    });
  }
  return faults;
}

function whenFaults({ inputs = [], when = [] }: SubmitJob): SpecFault[] {
  const names = inputs.map(({ name }) => name);
  return when.flatMap(({ input }, at) =>
    names.includes(input)
      ? []
      : [
          {
            param: `when[${at}].input`,
            detail: `the job has no input ${input}; it has ${names.join(", ") || "none"}`,
            reads: ["when", "inputs"],
          },
        ],
  );
}

function gpuFaults({ resources }: SubmitJob): SpecFault[] {
  if (resources.gpu_count > 0) return [];
  return (["gpu_type", "gpu_memory_gb"] as const)
    .filter((name) => resources[name] !== undefined)
    .map((name) => ({
      param: `resources.${name}`,
      detail: "a job without GPUs (`gpu_count` 0) cannot ask for their kind",
      reads: [`resources.${name}`, "resources.gpu_count"],
    }));
}

function gangFaults(spec: SubmitJob): SpecFault[] {
  const faults: SpecFault[] = [];
  const { tasks, failure_tolerance: tolerance } = spec;
  const split = splitFault(spec.resources.gpu_count, tasks ?? 1);
  const reads = ["resources.gpu_count", "tasks"];
  if (split) faults.push({ param: "resources.gpu_count", detail: split, reads });
  // Without `tasks`, each task has at least one GPU.
  const most = tasks ?? Math.max(1, Math.floor(spec.resources.gpu_count));
  if (tolerance > 0 && tolerance >= most) {
    const param = "failure_tolerance";
    const detail = toleranceText(tasks, most, tolerance);
    faults.push({ param, detail, reads: [...reads, param] });
  }
  return faults;
}

function toleranceText(tasks: number | undefined, most: number, tolerance: number): string {
  const lost = `at most ${most - 1} may be lost, got ${tolerance}`;
  if (tasks !== undefined) return `of ${tasks} tasks ${lost}`;
  return `without \`tasks\` there are as many as GPUs at most, here ${most}, of which ${lost}`;
}
