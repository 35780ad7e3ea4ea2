import { existsSync } from "node:fs";
import type { JobBlocker, JobExplanation } from "@heddle/contracts/api/job-replies";
import type { JobSpec } from "@heddle/contracts/api/job-spec";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../../command-context.ts";
import { wholeNumberOf } from "../../number-flags.ts";
import { printRecord, printRows } from "../../output/rows.ts";
import type { Terminal } from "../../output/terminal.ts";
import { resolveJobId } from "./job-id.ts";
import { readJobSpec } from "./job-spec.ts";
import { throwSpecFault } from "./spec-fault.ts";

/** `heddle jobs explain <job | file>`: why a job waits, or what a spec would lead to. */
export async function explainJob(command: Command): Promise<number> {
  const [given = ""] = command.args;
  const context = commandContext(command);
  if (isSpec(given)) return explainDryRun(context, await readJobSpec(command), given);
  const { heddle, data, messages, format } = context;
  const { at } = command.opts<{ readonly at?: string }>();
  if (at !== undefined) return explainPast(context, given, wholeNumberOf("--at", at));
  const job = await heddle.jobs.get(await resolveJobId(heddle, given));
  if (format !== "table" && format !== "wide") {
    printRecord(job.explanation, job.id, format, data);
  } else if (job.explanation) {
    data.write(`${job.name} is ${job.state}\n`);
    writeBlockers(job.explanation, data);
  } else {
    messages.write(`${job.name} is ${job.state}: it does not wait\n`);
  }
  return 0;
}

/** What the scheduler decides of a job with the state at a position of the log. */
async function explainPast(
  { heddle, data, format }: CommandContext,
  job: string,
  at: number,
): Promise<number> {
  const decision = await heddle.cluster.decision(job, { at });
  if (format !== "table" && format !== "wide") {
    printRecord(decision, decision.job, format, data);
    return 0;
  }
  const { verdict, inputs, explanation, placement, time, state } = decision;
  data.write(`${decision.job} at ${at} (${time}): ${state}, ${verdict}\n`);
  const place = inputs.position === null ? "not in the queue" : `place ${inputs.position}`;
  data.write(
    `  with ${inputs.ready_nodes} of ${inputs.nodes} nodes ready and ${inputs.queued} in the queue: ${place}\n`,
  );
  for (const { rank, node, devices } of placement) {
    data.write(`  rank ${rank} on ${node}${devices.length ? ` GPUs ${devices.join(",")}` : ""}\n`);
  }
  if (explanation) writeBlockers(explanation, data);
  return 0;
}

/** Whether it names a file, standard input or nothing, and no job. */
function isSpec(given: string): boolean {
  return given === "" || given === "-" || /\/|\.(ya?ml|json)$/.test(given) || existsSync(given);
}

/** Prints the result of a dry run; exit code 8 if the job can never run here. */
export async function explainDryRun(
  context: CommandContext,
  spec: JobSpec,
  file: string | undefined,
): Promise<number> {
  const { heddle, data, format } = context;
  const explained = await heddle.jobs
    .explain(spec)
    .catch((error: unknown) => throwSpecFault(error, file));
  const isHopeless = explained.verdict === "unsatisfiable";
  if (format !== "table" && format !== "wide") {
    printRecord(explained, explained.verdict, format, data);
    return isHopeless ? 8 : 0;
  }
  const verdict = { would_start: "it would start at once", would_wait: "it would wait" };
  data.write(
    `${isHopeless ? "it can never run here" : verdict[explained.verdict as keyof typeof verdict]} (${explained.tasks} tasks)\n`,
  );
  for (const { rank, node, node_name: name, devices } of explained.placement) {
    data.write(
      `  rank ${rank} on ${name ?? node}${devices.length ? ` GPUs ${devices.join(",")}` : ""}\n`,
    );
  }
  const { explanation } = explained;
  if (explained.verdict !== "would_start") {
    writeBlockers(explanation, data);
  }
  return isHopeless ? 8 : 0;
}

/**
 * The job's blockers with their amounts, its estimated start, and the smallest change that helps.
 */
export function writeBlockers(explanation: JobExplanation, data: Terminal): void {
  const { blockers, nodes, start_estimate: start, changes, tasks_that_fit: fit } = explanation;
  if (blockers.length > 0) writeBlockerTable(blockers, data);
  // Amounts say what is too small, and nothing of the other reasons.
  for (const { reason, message } of blockers) {
    if (!reason.startsWith("Insufficient")) data.writeForeign(`${message}\n`);
  }
  const rejected = Object.entries(nodes.rejected).map(([filter, count]) => `${count} by ${filter}`);
  if (nodes.rejected_by_capacity > 0) rejected.push(`${nodes.rejected_by_capacity} too full`);
  data.write(
    `nodes: ${nodes.total}${rejected.length ? `, rejected ${rejected.join(", ")}` : ""}; `,
  );
  data.write(`${fit} of its tasks would fit now\n`);
  const { earliest, likely, latest } = start;
  if (earliest ?? likely ?? latest) {
    data.write(`start: ${earliest ?? "?"} at the earliest, ${likely ?? "?"} likely, `);
    data.write(`${latest ?? "?"} at the latest\n`);
  }
  const [smallest] = changes;
  const starting = changes.find(({ outcome }) => outcome === "would_start");
  for (const { field, from, to, outcome } of new Set(
    [smallest, starting].filter((each) => !!each),
  )) {
    const how = to === null ? `without ${field}` : `with ${field} ${to} instead of ${from}`;
    data.write(`it would ${outcome === "would_start" ? "start" : "wait for its turn"} ${how}\n`);
  }
}

function writeBlockerTable(blockers: readonly JobBlocker[], data: Terminal): void {
  printRows(
    blockers,
    [
      { header: "BLOCKER", value: ({ reason }) => reason },
      { header: "RESOURCE", value: ({ resource }) => resource },
      { header: "REQUESTED", value: ({ requested }) => String(requested) },
      { header: "FREE", value: ({ free }) => String(free) },
      { header: "OF", value: ({ limit }) => String(limit) },
    ],
    "table",
    data,
  );
}
