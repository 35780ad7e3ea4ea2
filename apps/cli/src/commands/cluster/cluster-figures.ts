import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { fieldsOf, type JsonFields, numberOf, recordsOf, textOf } from "../../http/json-fields.ts";
import {
  type Column,
  isRecordFormat,
  printRecord,
  printRow,
  printRows,
} from "../../output/rows.ts";

const METRICS: readonly Column<JsonFields>[] = [
  { header: "WORKERS", value: (all) => states(fieldsOf(all["workers"])) },
  { header: "GPUS", value: (all) => share(all["gpus"], "used", "total") },
  { header: "CPU", value: (all) => share(all["cpu"], "used_cores", "cores") },
  { header: "MEMORY", value: (all) => gibShare(all["memory"], "used_bytes", "total_bytes") },
  { header: "REPLICAS", value: (all) => share(all["replicas"], "ready", "total") },
  { header: "RUNNING", value: (all) => figure(fieldsOf(all["requests"])["running"]) },
  { header: "WAITING", value: (all) => figure(fieldsOf(all["requests"])["waiting"]) },
  { header: "QUEUED", value: (all) => figure(fieldsOf(all["queues"])["dispatch"]) },
  { header: "TOKENS/S", value: (all) => figure(fieldsOf(all["tokens"])["generated_per_second"]) },
  { header: "JOBS", value: (all) => counts(fieldsOf(all["jobs"])["by_state"]) },
  { header: "WAIT FOR", value: (all) => counts(fieldsOf(all["jobs"])["pending_by_reason"]) },
  { header: "GPU IDLE", value: (all) => percent(all, "idle_percent") },
  { header: "GPU FRAGMENTED", value: (all) => percent(all, "fragmentation_percent"), wide: true },
  { header: "ADMISSION P99 MS", value: admissionMs, wide: true },
  { header: "CHANGES/S", value: (all) => figure(fieldsOf(all["raft"])["proposals_per_second"]) },
  { header: "APPLY MS", value: (all) => figure(fieldsOf(all["raft"])["apply_latency_ms"]) },
  { header: "TERM", value: (all) => figure(fieldsOf(all["raft"])["term"]), wide: true },
  { header: "COMMIT", value: (all) => figure(fieldsOf(all["raft"])["commit_index"]), wide: true },
  { header: "LAG", value: lags, wide: true },
];

const RESOURCES: readonly Column<JsonFields>[] = [
  { header: "NODE", value: (node) => textOf(node["name"]) },
  { header: "KIND", value: (node) => textOf(node["kind"]) },
  { header: "STATE", value: (node) => textOf(node["state"]) },
  { header: "CPU", value: (node) => share(node["cpu_cores"], "in_use", "offered") },
  { header: "CPU NOW", value: (node) => figure(fieldsOf(node["cpu_cores"])["measured"]) },
  { header: "MEMORY", value: (node) => gibShare(node["memory_bytes"], "in_use", "offered") },
  { header: "SSD NOW", value: (node) => gibShare(node["local_ssd_bytes"], "measured", "offered") },
  { header: "TASKS", value: tasks },
  { header: "GPUS", value: pools },
  { header: "HOLDERS", value: holders, wide: true },
];

/** `heddle cluster metrics`. */
export async function clusterMetrics(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const metrics = fieldsOf(await heddle.cluster.metrics());
  printRow(metrics, METRICS, format, data);
  return 0;
}

/** `heddle cluster resources`: a line for each node, and totals. */
export async function readClusterResources(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const resources = fieldsOf(await heddle.cluster.resources());
  if (isRecordFormat(format)) {
    printRecord(resources, "", format, data);
    return 0;
  }
  const sums = { ...fieldsOf(resources["totals"]), name: "all" };
  const nodes = recordsOf(resources["nodes"]);
  printRows(format === "name" ? nodes : [...nodes, sums], RESOURCES, format, data);
  return 0;
}

function states(workers: JsonFields): string {
  return counts(workers["by_state"]) || "0";
}

/** `2 ready, 1 suspect`; empty if there is no count. */
function counts(value: unknown): string {
  const given = Object.entries(fieldsOf(value)).filter(([, count]) => count !== 0);
  return given.map(([name, count]) => `${figure(count)} ${name}`).join(", ");
}

function percent(metrics: JsonFields, name: string): string {
  const share = figure(fieldsOf(fieldsOf(metrics["jobs"])["gpus"])[name]);
  return share === "" ? "" : `${share} %`;
}

function admissionMs(metrics: JsonFields): string {
  return figure(fieldsOf(fieldsOf(metrics["jobs"])["admission_ms"])["p99"]);
}

function share(value: unknown, part: string, whole: string): string {
  const fields = fieldsOf(value);
  return `${figure(fields[part])}/${figure(fields[whole])}`;
}

/** Without the total where a worker has no limit. */
function tasks(node: JsonFields): string {
  const { in_use: inUse, offered } = fieldsOf(node["tasks"]);
  return typeof offered === "number" ? `${figure(inUse)}/${figure(offered)}` : figure(inUse);
}

function gibShare(value: unknown, part: string, whole: string): string {
  const fields = fieldsOf(value);
  const gib = (name: string) => ((numberOf(fields[name]) ?? 0) / 2 ** 30).toFixed(1);
  return `${gib(part)}/${gib(whole)} GiB`;
}

function pools(node: JsonFields): string {
  return recordsOf(node["gpus"])
    .map(
      (pool) =>
        `${share(pool, "in_use", "count")} ${textOf(pool["type"])}${pool["simulated"] === true ? " (simulated)" : ""}`,
    )
    .join(", ");
}

function holders(node: JsonFields): string {
  return recordsOf(node["uses"])
    .map((use) => `${textOf(use["kind"])}:${textOf(use["id"])}`)
    .join(" ");
}

function lags(metrics: JsonFields): string {
  return recordsOf(fieldsOf(metrics["raft"])["peers"])
    .map((peer) => `${textOf(peer["master"])}:${figure(peer["lag"])}`)
    .join(" ");
}

function figure(value: unknown): string {
  const number = numberOf(value);
  if (number === undefined) return "";
  return String(Math.round(number * 10) / 10);
}
