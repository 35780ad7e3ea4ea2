import type { SubmitJob } from "@heddle/contracts/jobs";
import { splitFault } from "./task-request.ts";

/** One thing that is wrong with a spec whose fields are each well formed. */
export interface SpecFault {
  /** The field as a path, `resources.gpu_count`. */
  readonly param: string;
  readonly detail: string;
}

/** What does not fit together in a job's spec, all of it; empty for one that can be taken in. */
export function specFaults(spec: SubmitJob): readonly SpecFault[] {
  return [...programFaults(spec), ...gpuFaults(spec), ...gangFaults(spec)];
}

function programFaults(spec: SubmitJob): SpecFault[] {
  const faults: SpecFault[] = [];
  const { algorithm, command, container_image: image, config } = spec;
  if (algorithm === undefined && command === undefined && image === undefined) {
    faults.push({
      param: "command",
      detail: "one of `command`, `container_image` or `algorithm` must say what runs",
    });
  }
  if (algorithm === undefined && Object.keys(config).length > 0) {
    faults.push({ param: "config", detail: "`config` holds an `algorithm`'s hyperparameters" });
  }
  return faults;
}

function gpuFaults({ resources }: SubmitJob): SpecFault[] {
  if (resources.gpu_count > 0) return [];
  return (["gpu_type", "gpu_memory_gb"] as const)
    .filter((name) => resources[name] !== undefined)
    .map((name) => ({
      param: `resources.${name}`,
      detail: "a job without GPUs (`gpu_count` 0) cannot ask for their kind",
    }));
}

function gangFaults(spec: SubmitJob): SpecFault[] {
  const faults: SpecFault[] = [];
  const { tasks, failure_tolerance: tolerance } = spec;
  const split = splitFault(spec.resources.gpu_count, tasks ?? 1);
  if (split) faults.push({ param: "resources.gpu_count", detail: split });
  if (tasks !== undefined && tolerance >= tasks) {
    const detail = `of ${tasks} tasks at most ${tasks - 1} may be lost, got ${tolerance}`;
    faults.push({ param: "failure_tolerance", detail });
  }
  return faults;
}
