import { setTimeout as sleep } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { ModelScale, ModelSpec } from "@heddle/contracts/api/models";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import {
  fieldsOf,
  type JsonFields,
  numberOf,
  recordsOf,
  textOf,
  textsOf,
} from "../http/json-fields.ts";
import { isReady, listModels } from "../http/model-list.ts";
import { watchInterrupts } from "../interrupt.ts";
import { amountOf } from "../number-flags.ts";
import { PullProgressView } from "../output/progress.ts";
import { isRecordFormat, printChange, printRecord, printRows } from "../output/rows.ts";

const BYTES_PER_MIB = 2 ** 20;
/** How long a pull waits until its model is loaded, and the poll interval. */
const MAX_LOAD_WAIT_MS = 10 * 60_000;
const LOAD_POLL_MS = 200;
/** A pull retries failed replicas, which the cluster may show only a moment later. */
const FAILED_POLLS = 3;

/** `heddle models list`. */
export async function listModelsCommand(command: Command): Promise<number> {
  const { heddle, data, messages, format } = commandContext(command);
  const models = recordsOf(await heddle.models.list());
  printRows(
    models,
    [
      { header: "ID", value: (model) => textOf(model["id"]) },
      { header: "STATUS", value: (model) => textOf(model["status"]) },
      { header: "CONTEXT", value: context },
      { header: "BACKING", value: backing },
      { header: "FAMILY", value: (model) => textOf(model["family"]), wide: true },
      { header: "REPLICAS", value: replicas, wide: true },
      { header: "STAGES", value: stages, wide: true },
      { header: "CHAT TEMPLATE", value: chatTemplate, wide: true },
      { header: "WAITING FOR", value: waitingFor, wide: true },
      { header: "LINEAGE", value: lineage, wide: true },
    ],
    format,
    data,
  );
  if (format === "table" || format === "wide") messages.write(failuresOf(models));
  return 0;
}

/** A line for each distinct failure, with the affected models. */
function failuresOf(models: readonly JsonFields[]): string {
  const failed = models.filter((model) => model["status"] === "failed");
  const reported = Map.groupBy(failed, (model) =>
    [
      ...recordsOf(model["replicas"]).map(
        (replica) => `failed on ${textOf(replica["node"])}: ${textOf(replica["message"])}`,
      ),
      waitingFor(model),
    ]
      .filter((text) => text !== "")
      .join("; "),
  );
  return [...reported]
    .map(([why, group]) => `${group.map(({ id }) => textOf(id)).join(", ")}: ${why}\n`)
    .join("");
}

/**
 * The context of the running replicas, if they report it; otherwise that of the model's
 * registration.
 */
function context(model: JsonFields): string {
  return String(
    numberOf(model["served_context_tokens"]) ?? numberOf(model["context_window"]) ?? "",
  );
}

function backing(model: JsonFields): string {
  return textOf(model["backing"]) + (model["stand_in"] === true ? " (a stand-in)" : "");
}

/** The source of the chat template, and a note if the file has none. */
function chatTemplate(model: JsonFields): string {
  const origin = textOf(model["chat_template"]);
  if (origin === "" || origin === "file" || origin === "option") return origin;
  return `${origin} (none in the file)`;
}

/** Why a replica has no place yet. */
function waitingFor(model: JsonFields): string {
  return textsOf(model["waiting_for"]).join("; ");
}

/** The job that trained it, and the start of its data's digest. */
function lineage(model: JsonFields): string {
  const reported = fieldsOf(model["lineage"]);
  const job = textOf(reported["job_id"]);
  if (job === "") return "";
  const data = textOf(reported["data_sha256"]).slice(0, 12);
  const step = numberOf(reported["step"]);
  return [job, ...(step === undefined ? [] : [`step ${step}`]), ...(data && [`data ${data}`])].join(
    ", ",
  );
}

function replicas(model: JsonFields): string {
  return recordsOf(model["replicas"])
    .map((replica) => {
      const total = numberOf(replica["total_bytes"]) ?? 0;
      const pulled = numberOf(replica["pulled_bytes"]) ?? 0;
      const share = replica["phase"] === "pulling" && total > 0 ? ` ${percent(pulled, total)}` : "";
      const nodes = [textOf(replica["node"]), ...earlierStages(replica)];
      return `${nodes.join("+")}:${textOf(replica["phase"])}${share}`;
    })
    .join(" ");
}

/** The blocks of each divided replica's stages, with the memory and times that they report. */
function stages(model: JsonFields): string {
  return recordsOf(model["replicas"])
    .map((replica) => recordsOf(replica["stages"]).map(stageText).join(", "))
    .filter((text) => text !== "")
    .join("; ");
}

function stageText(stage: JsonFields): string {
  const [bytes = 0, stepMs, idle, hopMs] = ["memory_bytes", "step_ms", "idle_share", "hop_ms"].map(
    (name) => numberOf(stage[name]),
  );
  const device = textOf(stage["device"]);
  return [
    `${numberOf(stage["first_block"])}-${numberOf(stage["last_block"])}`,
    ...(device === "" || device === "cpu" ? [] : [device]),
    ...(bytes === 0 ? [] : [`${Math.ceil(bytes / BYTES_PER_MIB)} MiB`]),
    ...(stepMs === undefined ? [] : [`step ${stepMs.toFixed(1)} ms`]),
    ...(idle === undefined ? [] : [`idle ${percent(idle, 1)}`]),
    ...(hopMs === undefined ? [] : [`hop ${hopMs.toFixed(2)} ms`]),
  ].join(" ");
}

/** The workers that have the other stages of a divided model. */
function earlierStages(replica: JsonFields): string[] {
  return recordsOf(replica["stages"])
    .slice(0, -1)
    .map(({ node }) => textOf(node));
}

function percent(part: number, whole: number): string {
  return `${Math.floor((part / whole) * 100)}%`;
}

/** `heddle models register <id>`: its weights, the number of replicas, and the GPU of each. */
export async function registerModel(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const flags = command.opts() as Record<string, string | undefined>;
  const { source, replicas: wanted, gpuType, adapterOf: base } = flags;
  const scale = amountOf(flags, "adapterScale");
  const needed = {
    gpu_count: amountOf(flags, "gpus"),
    gpu_type: gpuType?.split(","),
    gpu_memory_gb: amountOf(flags, "gpuMemoryGb"),
  };
  const body = {
    id: command.args[0] ?? "",
    source,
    replicas: wanted === "every-worker" ? wanted : amountOf(flags, "replicas"),
    placement: flags["placement"],
    max_stages: amountOf(flags, "maxStages"),
    scaling: scalingOf(flags),
    adapter: base !== undefined || scale !== undefined ? { base, scale } : undefined,
    resources: Object.values(needed).some((value) => value !== undefined) ? needed : undefined,
  };
  // Unset flags are left out; the cluster validates the rest.
  const model = await heddle.models.register(JSON.parse(JSON.stringify(body)) as ModelSpec);
  printRecord(model, model.id, format, data);
  return 0;
}

/** `heddle models update <id>`: the number of its replicas, or bounds for it. */
export async function updateModel(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const flags = command.opts() as Record<string, string | undefined>;
  const { replicas: wanted } = flags;
  const replicas = wanted === "every-worker" ? wanted : amountOf(flags, "replicas");
  const body = JSON.parse(JSON.stringify({ replicas, scaling: scalingOf(flags) })) as ModelScale;
  const model = await heddle.models.scale(command.args[0] ?? "", body);
  printRecord(model, model.id, format, data);
  return 0;
}

/** The bounds that flags name; undefined without any. */
function scalingOf(flags: Record<string, string | undefined>) {
  const scaling = {
    min: amountOf(flags, "min"),
    max: amountOf(flags, "max"),
    idle_unload_s: amountOf(flags, "idleUnload"),
    target_queue: amountOf(flags, "targetQueue"),
    target_ttft_ms: amountOf(flags, "targetTtft"),
    cool_down_s: amountOf(flags, "coolDown"),
  };
  return Object.values(scaling).some((value) => value !== undefined) ? scaling : undefined;
}

/** `heddle models remove <id>`. */
export async function removeModel(command: Command): Promise<number> {
  const context = commandContext(command);
  const id = command.args[0] ?? "";
  const removed = await context.heddle.models.remove(id);
  printChange({ record: removed, name: id, sentence: `model ${id} is removed` }, context);
  return 0;
}

/** Waits while replicas load; throws `model_failed` if all have failed. */
async function expectLoaded(heddle: Heddle, id: string, signal: AbortSignal): Promise<void> {
  const endMs = performance.now() + MAX_LOAD_WAIT_MS;
  let failedPolls = 0;
  while (performance.now() < endMs) {
    const model = (await listModels(heddle, signal)).find((each) => each.id === id);
    const replicas = model?.replicas ?? [];
    const isComing = replicas.some(({ phase }) => phase === "pulling" || phase === "loading");
    const failed = replicas.find(({ phase }) => phase === "failed");
    if ((model && isReady(model)) || (!isComing && !failed)) return;
    failedPolls = isComing ? 0 : failedPolls + 1;
    if (failed && failedPolls >= FAILED_POLLS) {
      const where = `${id} is pulled, but loading it failed on ${failed.node}`;
      throw new AppError("model_failed", `${where}: ${failed.message}`);
    }
    await sleep(LOAD_POLL_MS, undefined, { signal });
  }
  throw new AppError("model_loading", `${id} is pulled, but not loaded yet.`);
}

/** `heddle models pull <id>`: a worker downloads the weights, with a progress bar. */
export async function pullModel(command: Command): Promise<number> {
  const { heddle, data, messages, format } = commandContext(command);
  const id = command.args[0] ?? "";
  const isRecord = format === "name" || isRecordFormat(format);
  const interrupts = watchInterrupts();
  const progress = new PullProgressView(messages, `pulling ${id}`);
  try {
    const { signal } = interrupts;
    for await (const { pulled_bytes, total_bytes } of heddle.models.pull(id, { signal })) {
      progress.update(pulled_bytes, total_bytes);
    }
    progress.end();
    if (!isRecord) data.write(`${id} is pulled\n`);
    await expectLoaded(heddle, id, signal);
    if (isRecord) printRecord(await heddle.models.get(id), id, format, data);
    return 0;
  } finally {
    progress.end();
    interrupts.release();
  }
}
