import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { isRecordFormat, printRecord } from "../../output/rows.ts";
import { explainDryRun } from "./job-explain.ts";
import { readJobSpec } from "./job-spec.ts";
import { endOfJob, followJob } from "./job-watch.ts";
import { throwSpecFault } from "./spec-fault.ts";

interface SubmitFlags {
  readonly watch?: boolean;
  readonly wait?: boolean;
  readonly dryRun?: boolean;
  readonly idempotencyKey?: string;
}

/** `heddle jobs submit [file]`: prints the job's id, for scripts. */
export async function submitJobCommand(command: Command): Promise<number> {
  const flags = command.opts() as SubmitFlags;
  const spec = await readJobSpec(command);
  const context = commandContext(command);
  if (flags.dryRun) return explainDryRun(context, spec, command.args[0]);
  const { idempotencyKey } = flags;
  const submitted = await context.heddle.jobs
    .create(spec, { idempotencyKey })
    .catch((error: unknown) => throwSpecFault(error, command.args[0]));
  const { data, messages, format } = context;
  const isRecord = isRecordFormat(format);
  // The command that follows prints the records then.
  if (isRecord && (flags.watch || flags.wait)) messages.write(`submitted ${submitted.job_id}\n`);
  else printRecord(submitted, submitted.job_id, format, data);
  if (flags.watch) return followJob(context, submitted.job_id);
  return flags.wait ? endOfJob(context, submitted.job_id) : 0;
}
