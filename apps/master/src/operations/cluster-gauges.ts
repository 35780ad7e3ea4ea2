import { Gauge, type Registry } from "prom-client";
import type { ClusterFigures, ClusterMetrics } from "./cluster-metrics.ts";

interface Figure {
  readonly name: string;
  readonly help: string;
  /** The label and its values' figures, or one figure. */
  readonly read: (figures: ClusterFigures) => number | Readonly<Record<string, number>>;
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
  { name: "gpus", help: "GPUs of the attached nodes.", read: ({ gpus }) => gpus.total },
  { name: "gpus_used", help: "GPUs that were given away.", read: ({ gpus }) => gpus.used },
  {
    name: "gpu_memory_bytes",
    help: "Memory of all GPUs.",
    label: "kind",
    read: ({ gpus }) => ({ total: gpus.memory_bytes, used: gpus.memory_used_bytes }),
  },
  {
    name: "cpu_cores",
    help: "Cores of the attached nodes.",
    label: "kind",
    read: ({ cpu }) => ({ total: cpu.cores, used: cpu.used_cores }),
  },
  {
    name: "memory_bytes",
    help: "Memory of the attached nodes.",
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
];

/** Puts the figures of GET /cluster/metrics into /metrics as `heddle_cluster_*`. */
export function exposeClusterMetrics(registry: Registry, source: ClusterMetrics): void {
  for (const { name, help, label, read } of FIGURES) {
    new Gauge({
      name: `heddle_cluster_${name}`,
      help,
      labelNames: label ? [label] : [],
      registers: [registry],
      collect() {
        const figure = read(source.figures());
        this.reset();
        if (typeof figure === "number") this.set(figure);
        else
          for (const [value, each] of Object.entries(figure))
            this.set({ [label ?? ""]: value }, each);
      },
    });
  }
}
