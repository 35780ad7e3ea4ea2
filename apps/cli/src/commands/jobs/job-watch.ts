import { setTimeout as delay } from "node:timers/promises";
import { isTerminalPhase } from "@heddle/client/resources/jobs/job-stream";
import type { Job, JobFailure } from "@heddle/contracts/api/job-replies";
import type { JobPhase } from "@heddle/contracts/api/job-spec";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../../command-context.ts";
import { watchInterrupts } from "../../interrupt.ts";
import { JobProgressView } from "../../output/job-progress.ts";
import { isRecordFormat, printChange, printStreamed } from "../../output/rows.ts";
import type { Terminal } from "../../output/terminal.ts";
import { resolveJobId } from "./job-id.ts";

/** The exit code if the awaited job did not succeed. */
const JOB_FAILED = 8;

/** `heddle jobs watch <job>`. */
export async function watchJob(command: Command): Promise<number> {
  const context = commandContext(command);
  return followJob(context, await resolveJobId(context.heddle, command.args[0]));
}

/** `heddle jobs wait <job>`. */
export async function waitForJob(command: Command): Promise<number> {
  const context = commandContext(command);
  return endOfJob(context, await resolveJobId(context.heddle, command.args[0]));
}

/**
 * Shows each update of a job until it has ended: a live line on a terminal, otherwise plain lines.
 */
export async function followJob(context: CommandContext, id: string): Promise<number> {
  const { heddle, data, messages, format } = context;
  const interrupts = watchInterrupts();
  const view = new JobProgressView(data);
  let last: JobPhase | undefined;
  let failure: JobFailure | null = null;
  try {
    for await (const update of heddle.jobs.stream(id, { signal: interrupts.signal })) {
      if (isRecordFormat(format)) printStreamed(update, format, data);
      else view.update(update);
      last = update.phase;
      if (update.type === "state") failure = update.failure;
    }
  } finally {
    view.end();
    interrupts.release();
  }
  if (failure && !isRecordFormat(format)) printFailure(failure, messages);
  // All updates were seen before, so the stream did not repeat the job's end.
  if (last === undefined || !isTerminalPhase(last)) last = (await heddle.jobs.get(id)).phase;
  if (last !== "SUCCEEDED") return JOB_FAILED;
  if (!isRecordFormat(format)) await printResults(context, id);
  return 0;
}

/** How long the registration of a model may take before it is no longer awaited. */
const REGISTER_WAIT_MS = 20_000;
const REGISTER_POLL_MS = 250;

/** Says how to get the job's artifacts, and the id of its model. */
async function printResults({ heddle, messages }: CommandContext, id: string): Promise<void> {
  const artifacts = await heddle.jobs.artifacts(id).catch(() => []);
  const names = artifacts.slice(0, 8).map(({ name }) => name);
  if (names.length > 0) {
    const more = artifacts.length > names.length ? ", ..." : "";
    messages.write(
      `artifacts: ${names.join(", ")}${more}; download: heddle jobs artifacts ${id}\n`,
    );
  }
  const until = performance.now() + REGISTER_WAIT_MS;
  let { model } = await heddle.jobs.get(id);
  while (model?.state === "pending" && performance.now() < until) {
    await delay(REGISTER_POLL_MS);
    ({ model } = await heddle.jobs.get(id));
  }
  if (model?.state === "registered") {
    messages.write(`the model ${model.id} is registered: heddle chat --model ${model.id}\n`);
  } else if (model) {
    messages.writeForeign(
      `the model ${model.id} is ${model.state}: ${model.message ?? "not yet"}\n`,
    );
  }
}

/** Waits silently until the job has ended; then prints it. */
export async function endOfJob(context: CommandContext, id: string): Promise<number> {
  const { heddle, messages, format } = context;
  const interrupts = watchInterrupts();
  let job: Job;
  try {
    job = await heddle.jobs.wait(id, { signal: interrupts.signal });
  } finally {
    interrupts.release();
  }
  printChange({ record: job, name: job.id, sentence: `${job.name} ${job.state}` }, context);
  if (job.failure && !isRecordFormat(format)) printFailure(job.failure, messages);
  return job.state === "succeeded" ? 0 : JOB_FAILED;
}

/** Why and where it failed, and its last log lines. */
export function printFailure(failure: JobFailure, out: Terminal): void {
  const { reason, cause, message, rank, node, node_name: name, exit_code: code, signal } = failure;
  const facts = [
    ...(cause === null ? [] : [`after ${cause}`]),
    ...(code === null ? [] : [`exit code ${code}`]),
    ...(signal === null ? [] : [signal]),
    ...(rank === null ? [] : [`rank ${rank}`]),
    ...(node === null ? [] : [name ? `on ${name}, ${node}` : `on ${node}`]),
  ];
  const place = facts.length > 0 ? ` (${facts.join(", ")})` : "";
  out.writeForeign(`${reason}${place}: ${message}\n`);
  for (const line of failure.last_lines) out.writeForeign(`  ${line}\n`);
}
