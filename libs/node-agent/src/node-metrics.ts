import { progressLine } from "@heddle/contracts/api/job-spec";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { StageLoad } from "@heddle/contracts/generated/heddle/v1/StageLoad";
import { Counter, Gauge, type Registry } from "prom-client";

/** What a node's metrics are read from at each scrape. */
export interface NodeFigures {
  /** Its state, as its next heartbeat reports it. */
  readonly heartbeat: () => Heartbeat;
  /** Masters that it is attached to now. */
  readonly attachedMasters: () => number;
}

type Labels = Readonly<Record<string, string | number>>;
type Amount = Heartbeat["memoryUsedBytes"];
type LabelledAmount = readonly [labels: Labels, value: Amount];

interface Metric {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly string[];
  readonly samples: (node: Heartbeat) => readonly LabelledAmount[];
}

const GAUGES: readonly Metric[] = [
  {
    name: "heddle_node_cpu_utilization_ratio",
    help: "Use of the machine's CPUs over the last second, 0 to 1.",
    samples: ({ cpuPercent }) => [[{}, Number(cpuPercent ?? 0) / 100]],
  },
  {
    name: "heddle_node_memory_used_bytes",
    help: "Memory in use on the machine.",
    samples: ({ memoryUsedBytes }) => [[{}, memoryUsedBytes]],
  },
  {
    name: "heddle_node_disk_free_bytes",
    help: "Free space on the disk of the data directory.",
    samples: ({ diskFreeBytes }) => [[{}, diskFreeBytes]],
  },
  {
    name: "heddle_node_disk_bytes",
    help: "Size of the disk of the data directory.",
    samples: ({ diskTotalBytes }) => [[{}, diskTotalBytes]],
  },
  {
    name: "heddle_node_gpu_utilization_ratio",
    help: "Use of a GPU, 0 to 1.",
    labels: ["gpu"],
    samples: eachGpu(({ utilizationPercent }) => Number(utilizationPercent ?? 0) / 100),
  },
  {
    name: "heddle_node_gpu_memory_bytes",
    help: "Memory of a GPU.",
    labels: ["gpu"],
    samples: eachGpu(({ memoryBytes }) => memoryBytes),
  },
  {
    name: "heddle_node_gpu_memory_used_bytes",
    help: "Memory in use on a GPU.",
    labels: ["gpu"],
    samples: eachGpu(({ memoryUsedBytes }) => memoryUsedBytes),
  },
  {
    name: "heddle_node_gpu_faulty",
    help: "1 for a GPU with a fault, 0 for a healthy one.",
    labels: ["gpu"],
    samples: eachGpu(({ fault }) => (fault ? 1 : 0)),
  },
  {
    name: "heddle_node_tasks",
    help: "Tasks of jobs that run on this node.",
    samples: ({ tasks }) => [[{}, tasks?.length]],
  },
  {
    name: "heddle_node_task_step",
    help: "Latest step that a running task has reported.",
    labels: ["job", "rank"],
    samples: eachTask("step"),
  },
  {
    name: "heddle_node_task_steps_per_second",
    help: "Rate of steps that a running task has reported.",
    labels: ["job", "rank"],
    samples: eachTask("steps_per_second"),
  },
  {
    name: "heddle_node_task_tokens_per_second",
    help: "Rate of tokens that a running task has reported.",
    labels: ["job", "rank"],
    samples: eachTask("tokens_per_second"),
  },
  {
    name: "heddle_node_task_loss",
    help: "Latest loss that a running task has reported.",
    labels: ["job", "rank"],
    samples: eachTask("loss"),
  },
  {
    name: "heddle_node_task_pushed_bytes",
    help: "Bytes that a running trainer has sent to the parameter servers.",
    labels: ["job", "rank"],
    samples: eachTask("bytes_pushed"),
  },
  {
    name: "heddle_node_sequences",
    help: "Sequences in a replica's engine.",
    labels: ["deployment", "state"],
    samples: ({ replicas = [] }) =>
      replicas.flatMap(({ deployment = "", load }): LabelledAmount[] => [
        [{ deployment, state: "running" }, load?.running],
        [{ deployment, state: "waiting" }, load?.waiting],
      ]),
  },
  {
    name: "heddle_node_replica_phase",
    help: "1 for the phase that a replica is in.",
    labels: ["deployment", "phase"],
    samples: ({ replicas = [] }) =>
      replicas.map(({ deployment = "", phase = "" }) => [{ deployment, phase }, 1]),
  },
  {
    name: "heddle_node_kv_cache_usage_ratio",
    help: "Use of a replica's KV cache by live sequences and cached prefixes, 0 to 1.",
    labels: ["deployment"],
    samples: eachReplica(({ kvUsedTokens, kvTokens }) =>
      Number(kvTokens ?? 0) === 0 ? 0 : Number(kvUsedTokens ?? 0) / Number(kvTokens),
    ),
  },
  {
    name: "heddle_node_replica_resident_bytes",
    help: "Memory of a replica's process.",
    labels: ["deployment"],
    samples: eachReplica(({ residentBytes }) => residentBytes),
  },
  {
    name: "heddle_node_stage_planned_bytes",
    help: "Memory that was planned for a stage of a divided model.",
    labels: ["deployment"],
    samples: ({ replicas = [] }) =>
      replicas.flatMap(({ deployment = "", stage }): LabelledAmount[] =>
        stage ? [[{ deployment }, stage.memoryBytes]] : [],
      ),
  },
];

const COUNTERS: readonly Metric[] = [
  {
    name: "heddle_node_prompt_tokens_total",
    help: "Tokens of prompts since the replica's engine started.",
    labels: ["deployment"],
    samples: eachReplica(({ promptTokens }) => promptTokens),
  },
  {
    name: "heddle_node_cached_tokens_total",
    help: "Tokens of prompts that came from the prefix cache.",
    labels: ["deployment"],
    samples: eachReplica(({ cachedTokens }) => cachedTokens),
  },
  {
    name: "heddle_node_generated_tokens_total",
    help: "Tokens that the replica's engine generated since it started.",
    labels: ["deployment"],
    samples: eachReplica(({ generatedTokens }) => generatedTokens),
  },
  {
    name: "heddle_node_draft_tokens_total",
    help: "Predicted tokens that the replica's engine computed.",
    labels: ["deployment"],
    samples: eachReplica(({ draftTokens }) => draftTokens),
  },
  {
    name: "heddle_node_accepted_tokens_total",
    help: "Predicted tokens that were right, and so became part of an answer.",
    labels: ["deployment"],
    samples: eachReplica(({ acceptedTokens }) => acceptedTokens),
  },
  {
    name: "heddle_node_engine_restarts_total",
    help: "Restarts of a replica's process after a crash.",
    labels: ["deployment"],
    samples: eachReplica(({ restarts }) => restarts),
  },
  {
    name: "heddle_node_stage_steps_total",
    help: "Batches that a stage of a divided model has computed.",
    labels: ["deployment"],
    samples: eachStage(({ steps }) => steps),
  },
  {
    name: "heddle_node_stage_busy_seconds_total",
    help: "Time in which a stage of a divided model computed.",
    labels: ["deployment"],
    samples: eachStage(({ busyMs }) => Number(busyMs ?? 0) / 1_000),
  },
  {
    name: "heddle_node_stage_idle_seconds_total",
    help: "Time in which a stage waited for others between two batches (bubbles).",
    labels: ["deployment"],
    samples: eachStage(({ idleMs }) => Number(idleMs ?? 0) / 1_000),
  },
  {
    name: "heddle_node_stage_hops_total",
    help: "Hops of batches between workers that a last stage has timed.",
    labels: ["deployment"],
    samples: eachStage(({ hops }) => hops),
  },
  {
    name: "heddle_node_stage_hop_seconds_total",
    help: "Time of these hops.",
    labels: ["deployment"],
    samples: eachStage(({ hopMicros }) => Number(hopMicros ?? 0) / 1_000_000),
  },
  {
    name: "heddle_node_refusals_total",
    help: "Calls that a parameter server refused, by reason.",
    labels: ["reason"],
    samples: ({ refusals }) =>
      Object.entries(refusals ?? {}).map(([reason, count]) => [{ reason }, count]),
  },
];

/**
 * Registers the metrics of a worker or a parameter server. The series are those of the latest
 * heartbeat: a replica that is unloaded has none.
 */
export function exposeNodeMetrics(registry: Registry, figures: NodeFigures): void {
  const registers = [registry];
  new Gauge({
    name: "heddle_node_attached_masters",
    help: "Masters that this node is attached to.",
    registers,
    collect() {
      this.set(figures.attachedMasters());
    },
  });
  for (const { name, help, labels = [], samples } of GAUGES) {
    new Gauge({
      name,
      help,
      registers,
      labelNames: [...labels],
      collect() {
        this.reset();
        for (const [at, value] of samples(figures.heartbeat())) this.set(at, Number(value ?? 0));
      },
    });
  }
  for (const { name, help, labels = [], samples } of COUNTERS) {
    new Counter({
      name,
      help,
      registers,
      labelNames: [...labels],
      collect() {
        this.reset();
        for (const [at, value] of samples(figures.heartbeat())) this.inc(at, Number(value ?? 0));
      },
    });
  }
}

type GpuState = NonNullable<Heartbeat["gpus"]>[number];
type LoadReport = NonNullable<NonNullable<Heartbeat["replicas"]>[number]["load"]>;

function eachGpu(read: (gpu: GpuState) => Amount): Metric["samples"] {
  return ({ gpus = [] }) => gpus.map((gpu) => [{ gpu: gpu.index ?? 0 }, read(gpu)]);
}

type TaskNumber = "step" | "steps_per_second" | "tokens_per_second" | "loss" | "bytes_pushed";

/** Samples of the tasks whose latest progress line has the number. */
function eachTask(name: TaskNumber): Metric["samples"] {
  return ({ tasks = [] }) =>
    tasks.flatMap(({ task, progress }): LabelledAmount[] => {
      const value = progressLine.parse(JSON.parse(progress?.line || "{}"))[name];
      const { jobId: job = "", rank = 0 } = task ?? {};
      return typeof value === "number" ? [[{ job, rank }, value]] : [];
    });
}

/** Samples of the replicas that are parts of divided models. */
function eachStage(read: (load: StageLoad) => Amount): Metric["samples"] {
  return ({ replicas = [] }) =>
    replicas.flatMap(({ deployment = "", load }): LabelledAmount[] =>
      load?.stage ? [[{ deployment }, read(load.stage)]] : [],
    );
}

function eachReplica(read: (load: LoadReport) => Amount): Metric["samples"] {
  return ({ replicas = [] }) =>
    replicas.map(({ deployment = "", load }) => [{ deployment }, read(load ?? {})]);
}
