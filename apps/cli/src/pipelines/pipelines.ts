import type {
  BlockView,
  PipelineJob,
  PipelineSummary,
  PipelineView,
} from "@heddle/contracts/api/pipelines/operations";
import type { PipelineDefinition } from "@heddle/contracts/api/pipelines/spec";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../command-context.ts";
import { readSpecFile } from "../commands/jobs/job-spec.ts";
import { throwSpecFault } from "../commands/jobs/spec-fault.ts";
import { wholeNumberOf } from "../number-flags.ts";
import { type Column, isRecordFormat, printRecord, printRows } from "../output/rows.ts";

const FAILED = 8;

const STEPS: readonly Column<PipelineJob>[] = [
  { header: "STEP", value: ({ step, shard }) => (shard === null ? step : `${step}[${shard}]`) },
  { header: "BLOCK", value: ({ block }) => block },
  { header: "STATE", value: stateOf },
  { header: "AFTER", value: ({ needs }) => needs.join(",") },
  { header: "JOB", value: ({ job }) => job ?? "" },
  { header: "MESSAGE", value: ({ message }) => message ?? "" },
  { header: "KEY", value: ({ key }) => key, wide: true },
];

const PIPELINES: readonly Column<PipelineSummary>[] = [
  { header: "ID", value: ({ id }) => id },
  { header: "NAME", value: ({ name }) => name },
  { header: "STATE", value: ({ state }) => state },
  { header: "PROJECT", value: ({ project }) => project },
  { header: "SUBMITTED", value: ({ submitted_at: at }) => at },
];

const BLOCKS: readonly Column<BlockView>[] = [
  { header: "BLOCK", value: ({ id }) => id },
  { header: "INPUTS", value: ({ inputs }) => inputs.map(portText).join(",") },
  { header: "OUTPUTS", value: ({ outputs }) => outputs.map(portText).join(",") },
  { header: "MEANING", value: ({ summary }) => summary },
];

function stateOf({ state, reused, skipped }: PipelineJob): string {
  if (reused) return "reused";
  return skipped ? "skipped" : (state ?? "planned");
}

function portText({ name, type, required }: BlockView["inputs"][number]): string {
  return `${name}:${type}${required === false ? "?" : ""}`;
}

/** `heddle pipelines submit <file>`: prints the id, for scripts. */
export async function submitPipeline(command: Command): Promise<number> {
  const [file = ""] = command.args;
  const flags = command.opts<{ wait?: boolean; reuse: boolean; idempotencyKey?: string }>();
  const spec = { ...(await specOf(file)), ...(flags.reuse ? {} : { reuse: false }) };
  const context = commandContext(command);
  const { heddle, format, data, messages } = context;
  const { idempotencyKey } = flags;
  const pipeline = await heddle.pipelines
    .create(spec, { idempotencyKey })
    .catch((error: unknown) => throwSpecFault(error, file));
  if (!flags.wait) {
    printRecord(pipeline, pipeline.id, format, data);
    return 0;
  }
  messages.write(`submitted ${pipeline.id}\n`);
  const { state } = await heddle.jobs.wait(pipeline.id);
  print(context, await heddle.pipelines.get(pipeline.id));
  return state === "succeeded" ? 0 : FAILED;
}

async function specOf(file: string): Promise<PipelineDefinition> {
  return (await readSpecFile(file, "pipeline")) as unknown as PipelineDefinition;
}

function print({ format, data }: CommandContext, pipeline: PipelineView): void {
  if (isRecordFormat(format)) printRecord(pipeline, pipeline.id, format, data);
  else printRows(pipeline.jobs, STEPS, format, data);
}

/** `heddle pipelines get <id>`. */
export async function getPipeline(command: Command): Promise<number> {
  const context = commandContext(command);
  print(context, await context.heddle.pipelines.get(command.args[0] ?? ""));
  return 0;
}

/** `heddle pipelines graph <id|file>`. */
export async function graphPipeline(command: Command): Promise<number> {
  const [given = ""] = command.args;
  const { dot } = command.opts<{ dot?: boolean }>();
  const context = commandContext(command);
  const { pipelines } = context.heddle;
  const pipeline = /^job_[0-9A-Z]{26}$/.test(given)
    ? await pipelines.get(given)
    : await pipelines
        .plan(await specOf(given))
        .catch((error: unknown) => throwSpecFault(error, given));
  if (dot) context.data.write(dotText(pipeline));
  else print(context, pipeline);
  return 0;
}

/** The graph of steps; shards of one are one node. */
function dotText({ name, jobs }: PipelineView): string {
  const steps = new Map(jobs.map((job) => [job.step, job]));
  const nodes = [...steps.values()].map((job) => {
    return `  "${job.step}" [label="${job.step}\\n${job.block}\\n${stateOf(job)}"];\n`;
  });
  const edges = [...steps.values()].flatMap(({ step, needs }) =>
    needs.map((need) => `  "${need}" -> "${step}";\n`),
  );
  return `digraph "${name}" {\n${nodes.join("")}${edges.join("")}}\n`;
}

/** `heddle pipelines list`. */
export async function listPipelines(command: Command): Promise<number> {
  const { heddle, format, data } = commandContext(command);
  const { limit: text, ...filters } = command.opts<{ limit: string; name?: string }>();
  const limit = wholeNumberOf("--limit", text);
  const page = await heddle.pipelines.list({ ...filters, limit }).page();
  printRows([...page.data], PIPELINES, format, data);
  return 0;
}

/** `heddle pipelines cancel <id>`. */
export async function cancelPipeline(command: Command): Promise<number> {
  const context = commandContext(command);
  print(context, await context.heddle.pipelines.cancel(command.args[0] ?? ""));
  return 0;
}

/** `heddle pipelines blocks`. */
export async function listBlocks(command: Command): Promise<number> {
  const { heddle, format, data } = commandContext(command);
  printRows([...(await heddle.pipelines.blocks())], BLOCKS, format, data);
  return 0;
}
