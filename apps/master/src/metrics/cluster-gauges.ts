import { ReadMetric, type Sample } from "@heddle/observability/read-metric";
import type { Registry } from "prom-client";
import type { ClusterFigures, ClusterMetrics } from "./cluster-metrics.ts";

interface Figure {
  readonly name: string;
  readonly help: string;
  /** The label and its values, or one value. */
  readonly read: (figures: ClusterFigures) => number | Readonly<Record<string, number | null>>;
  readonly label?: string;
}

const FIGURES: readonly Figure[] = [
  {
    name: "workers",
    help: "Workers attached to this master.",
    label: "state",
    read: ({ workers }) => workers.by_state,
  },
  {
    name: "parameter_servers",
    help: "Parameter servers attached to this master.",
    read: ({ parameter_servers }) => parameter_servers.total,
  },
  {
    name: "nodes_refusing",
    help: "Attached nodes that refuse this master's cluster or its leader.",
    label: "kind",
    read: ({ nodes_refusing }) => nodes_refusing,
  },
  { name: "gpus", help: "GPUs of the attached nodes.", read: ({ gpus }) => gpus.total },
  {
    name: "gpus_simulated",
    help: "GPUs of the attached nodes that do not exist.",
    read: ({ gpus }) => gpus.simulated,
  },
  { name: "gpus_used", help: "GPUs that were given away.", read: ({ gpus }) => gpus.used },
  {
    name: "gpu_memory_bytes",
    help: "Memory of all GPUs.",
    label: "kind",
    read: ({ gpus }) => ({ total: gpus.memory_bytes, used: gpus.memory_used_bytes }),
  },
  {
    name: "cpu_cores",
    help: "Cores of the machines of the attached nodes, each machine once.",
    label: "kind",
    read: ({ cpu }) => ({ total: cpu.cores, used: cpu.used_cores }),
  },
  {
    name: "memory_bytes",
    help: "Memory of the machines of the attached nodes, each machine once.",
    label: "kind",
    read: ({ memory }) => ({ total: memory.total_bytes, used: memory.used_bytes }),
  },
  {
    name: "replicas",
    help: "Replicas of models.",
    label: "kind",
    read: ({ replicas }) => ({ total: replicas.total, ready: replicas.ready }),
  },
  {
    name: "requests",
    help: "Requests in the engines.",
    label: "kind",
    read: ({ requests }) => ({ running: requests.running, waiting: requests.waiting }),
  },
  {
    name: "tokens_per_second",
    help: "Tokens over the last seconds, by all engines.",
    label: "kind",
    read: ({ tokens }) => ({
      prompt: tokens.prompt_per_second,
      generated: tokens.generated_per_second,
    }),
  },
  {
    name: "jobs",
    help: "Jobs that are kept, ended ones among them.",
    label: "state",
    read: ({ jobs }) => jobs.by_state,
  },
  {
    name: "jobs_pending",
    help: "Jobs that wait; one with several reasons counts under each.",
    label: "reason",
    read: ({ jobs }) => jobs.pending_by_reason,
  },
  {
    name: "job_admission_seconds",
    help: "From submission to admission, of the latest jobs.",
    label: "quantile",
    read: ({ jobs }) => secondsOf(jobs.admission_ms),
  },
  {
    name: "job_start_seconds",
    help: "From submission to the first reservation of places, of the latest jobs.",
    label: "quantile",
    read: ({ jobs }) => secondsOf(jobs.start_ms),
  },
  {
    name: "job_gpus",
    help: "GPUs for jobs: those that take work, those held, unhealthy ones, and those that do not exist.",
    label: "kind",
    read: ({ jobs: { gpus } }) => ({
      total: gpus.total,
      held: gpus.held,
      quarantined: gpus.quarantined,
      simulated: gpus.simulated,
    }),
  },
  {
    name: "gpu_idle_percent",
    help: "The share of the GPUs that take work and that nothing holds.",
    read: ({ jobs }) => jobs.gpus.idle_percent,
  },
  {
    name: "gpu_fragmentation_percent",
    help: "Of what is free of GPUs, the share on devices of which a part is held.",
    read: ({ jobs }) => jobs.gpus.fragmentation_percent,
  },
  {
    name: "project_gpu_hours",
    help: "GPU-hours in the accounting window of 30 days, of the projects with the most.",
    label: "project",
    read: ({ jobs }) => largest(jobs.gpu_hours),
  },
  {
    name: "project_storage_bytes",
    help: "What counts for the storage quota, of the projects with the most.",
    label: "project",
    read: ({ jobs }) => largest(mapped(jobs.storage, ({ bytes }) => bytes)),
  },
  {
    name: "project_storage_limit_bytes",
    help: "The storage quota, of projects that have one.",
    label: "project",
    read: ({ jobs }) => largest(limitsOf(jobs.storage)),
  },
  {
    name: "state_bytes",
    help: "Memory that the masters' state takes.",
    label: "kind",
    read: ({ state }) => mapped(state, ({ bytes }) => bytes),
  },
  {
    name: "state_limit_bytes",
    help: "Memory that the masters' state may take; changes that need more are refused.",
    label: "kind",
    read: ({ state }) => mapped(state, ({ limit_bytes }) => limit_bytes),
  },
  {
    name: "scheduling_round_seconds",
    help: "Durations of the latest rounds of scheduling that this master led.",
    label: "quantile",
    read: ({ jobs }) => secondsOf(jobs.scheduler.round_ms),
  },
];

function mapped<T>(
  values: Readonly<Record<string, T>>,
  read: (value: T) => number,
): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, read(value)]));
}

function limitsOf(storage: ClusterFigures["jobs"]["storage"]): Record<string, number> {
  const limited = Object.entries(storage).flatMap(([name, { limit_bytes: limit }]) =>
    limit === null ? [] : [[name, limit] as const],
  );
  return Object.fromEntries(limited);
}

/** Projects with a series of their own. */
const MAX_PROJECTS = 1_000;

function largest(values: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  const sorted = Object.entries(values).sort(([, a], [, b]) => b - a);
  return Object.fromEntries(sorted.slice(0, MAX_PROJECTS));
}

function secondsOf({ p50, p99 }: ClusterFigures["jobs"]["admission_ms"]) {
  return { "0.5": p50 === null ? null : p50 / 1_000, "0.99": p99 === null ? null : p99 / 1_000 };
}

/** Exposes the values of GET /cluster/metrics in /metrics as `heddle_cluster_*`. */
export function exposeClusterMetrics(registry: Registry, source: ClusterMetrics): void {
  for (const { name: figure, help, label, read } of FIGURES) {
    const name = `heddle_cluster_${figure}`;
    new ReadMetric(registry, { name, help, type: "gauge" }, async () =>
      samplesOf(read(await source.figures()), label),
    );
  }
}

function samplesOf(figure: ReturnType<Figure["read"]>, label = ""): Sample[] {
  if (typeof figure === "number") return [{ labels: {}, value: figure }];
  return Object.entries(figure).flatMap(([value, each]) =>
    each === null ? [] : [{ labels: { [label]: value }, value: each }],
  );
}
