import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { exposeNodeMetrics } from "./node-metrics.ts";
import { withMetrics } from "./with-metrics.ts";

test("node metrics: each scrape shows the replicas and GPUs of now", async () => {
  const registry = new Registry();
  const load = {
    running: 2,
    waiting: 1,
    kvUsedTokens: 256,
    kvTokens: 1024,
    generatedTokens: 70,
    draftTokens: 40,
    stage: { steps: 9, busyMs: 1_500, idleMs: 500, hops: 4, hopMicros: 2_000 },
  };
  let state: Heartbeat = {
    cpuPercent: 25,
    memoryUsedBytes: 4096,
    tasks: [
      {
        task: { jobId: "job_A", rank: 1 },
        progress: { line: '{"step":7,"loss":null,"tokens_per_second":1500.5,"note":"x"}' },
      },
    ],
    refusals: { stale: 3 },
    gpus: [
      { index: 1, utilizationPercent: 50, memoryBytes: 80, memoryUsedBytes: 20, fault: "ECC" },
    ],
    replicas: [{ deployment: "m", phase: "ready", load, stage: { memoryBytes: 512 } }],
  };
  exposeNodeMetrics(registry, { heartbeat: () => state, attachedMasters: () => 3 });
  const first = (await registry.metrics()).split("\n");
  for (const line of [
    "heddle_node_attached_masters 3",
    "heddle_node_cpu_utilization_ratio 0.25",
    "heddle_node_memory_used_bytes 4096",
    "heddle_node_tasks 1",
    'heddle_node_task_step{job="job_A",rank="1"} 7',
    'heddle_node_task_tokens_per_second{job="job_A",rank="1"} 1500.5',
    'heddle_node_gpu_utilization_ratio{gpu="1"} 0.5',
    'heddle_node_gpu_memory_used_bytes{gpu="1"} 20',
    'heddle_node_gpu_faulty{gpu="1"} 1',
    'heddle_node_sequences{deployment="m",state="running"} 2',
    'heddle_node_sequences{deployment="m",state="waiting"} 1',
    'heddle_node_replica_phase{deployment="m",phase="ready"} 1',
    'heddle_node_kv_cache_usage_ratio{deployment="m"} 0.25',
    'heddle_node_generated_tokens_total{deployment="m"} 70',
    'heddle_node_refusals_total{reason="stale"} 3',
    'heddle_node_stage_planned_bytes{deployment="m"} 512',
    'heddle_node_stage_steps_total{deployment="m"} 9',
    'heddle_node_stage_busy_seconds_total{deployment="m"} 1.5',
    'heddle_node_stage_idle_seconds_total{deployment="m"} 0.5',
    'heddle_node_stage_hop_seconds_total{deployment="m"} 0.002',
  ]) {
    expect(first).toContain(line);
  }
  expect(first.filter((line) => line.startsWith("heddle_node_task_loss"))).toEqual([]);
  state = { ...state, replicas: [], tasks: [] };
  expect(await registry.metrics()).not.toMatch(/deployment="m"|job="job_A"/);
});

// holds: access-metrics
test("node metrics: no reader of the port learns of jobs", async () => {
  const task = { jobId: "job_A", rank: 1 };
  const heartbeat = () => ({ tasks: [{ task, progress: { line: '{"step":7,"loss":0.5}' } }] });
  const node = { nodeId: "n", address: "a", attachedMasters: () => 1, close: async () => {} };
  const place = { host: "127.0.0.1", port: 0, log: { warn() {} } };
  const { metrics = "", close } = await withMetrics("worker", { ...node, heartbeat }, place);
  const text = await (await fetch(metrics)).text();
  await close(0);
  expect(text).toMatch(/^heddle_node_tasks\{.*\} 1$/m);
  expect(text).not.toContain("job_A");
});
